"""Store records and states on the local disk, from the moment they are read until the records are committed."""
