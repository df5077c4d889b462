"""Mean Teacher: consistency with an exponential moving average of the network."""

from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, follow, input_noise, make_teacher, softmax, squared_distance
from hebbseg.methods.options import Rate, Share, Weight


class MeanTeacher(RampedMethod):
    """Consistency between a student and its exponential moving average (EMA), the teacher.

        L = L_sup(labelled) + λ(t) · mean ‖p(x; W, ξ) − p(x + η; W̄, ξ̄)‖² / K    on unlabelled images

    where W̄ ← d W̄ + (1 − d) W after every update, η is input noise and ξ, ξ̄ are the dropout of student and teacher. Both
    use batch statistics in normalization layers, as running statistics would not fit the teacher's weights. The student
    is the final model.

    Tarvainen and Valpola, NIPS 2017. Their weight (100) is for image classification; the default is this project's own.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        decay: d, EMA decay of the teacher
        noise: standard deviation of η relative to that of the image; η is clipped at two standard deviations
    """

    title = "Mean Teacher"

    def __init__(
        self,
        *,
        weight: Weight = 5.0,
        ramp: Ramp = "linear",
        ramp_share: Share = 1.0,
        decay: Rate = 0.99,
        noise: Weight = 0.1,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.decay = decay
        self.noise = noise
        self.teacher = make_teacher(self.network)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        with torch.no_grad():
            target = softmax(self.teacher(input_noise(unlabelled, step.generator, self.noise)))
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": self.lambda_(step) * squared_distance(softmax(logits[count:]), target).mean(),
        }

    def after_step(self, step: Step) -> None:
        follow(self.teacher, self.network, self.decay, step.number)
