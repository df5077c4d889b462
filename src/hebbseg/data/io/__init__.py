"""One module per family of files, each with the four functions of `hebbseg.data.io.image_file.FileType`."""
