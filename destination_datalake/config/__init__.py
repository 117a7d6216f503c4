"""The connector's options: models, normalisation, and the messages about what is wrong with them."""
