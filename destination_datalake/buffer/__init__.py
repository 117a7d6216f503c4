"""The buffer of a sync: keeps records and states on the local disk until the records are committed."""
