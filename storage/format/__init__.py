"""A batch of records as bytes: header, columns, codecs. Pure."""
