"""File formats: one module per library, each with the four functions of `hebbseg.data.io.image_file.FileType`."""
