"""Mean teacher: agree with an average of what you were, whatever the noise."""

from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, follow, input_noise, make_teacher, ramp_up, softmax, squared_distance
from hebbseg.methods.options import Rate, Share, Weight


class MeanTeacher(Method):
    """L = L_sup(labelled) + λ(t) · mean ‖p(x; W, ξ) − p(x + η; W̄, ξ̄)‖² / K on unlabelled images.

    W̄ is the running mean of W, updated at every step: W̄ ← d W̄ + (1 − d) W. η is noise on the teacher's input, ξ and ξ̄
    are the dropout of each. The teacher normalizes with the statistics of its batch, like the student: running ones
    would belong to other weights than its own. The student is kept.

    Tarvainen and Valpola, NIPS 2017. Their weight (100) is for classes of whole images; λ here is this project's common one.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        decay: d, the teacher's memory from one update to the next
        noise: standard deviation of η in units of the image's own, clipped at twice that
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
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.decay = decay
        self.noise = noise
        self.teacher = make_teacher(self.network)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        with torch.no_grad():
            target = softmax(self.teacher(input_noise(unlabelled, step.generator, self.noise)))
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": λ * squared_distance(softmax(logits[count:]), target).mean(),
        }

    def after_step(self, step: Step) -> None:
        follow(self.teacher, self.network, self.decay, step.number)
