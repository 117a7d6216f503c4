"""Records on local disk, between the moment they are read and the moment Spark has taken them."""
