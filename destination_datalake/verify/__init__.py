"""The command `verify`: tables read to their last value, and compared with what is said of them."""
