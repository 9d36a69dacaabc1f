"""Bundle files: format, index, images."""
