"""Records and states on local disk, from the moment they are read until their records are committed."""
