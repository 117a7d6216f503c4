"""Records and states on local disk. They are kept from the moment they are read until the records are committed."""
