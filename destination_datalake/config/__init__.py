"""The connector's options: models, normalisation, and messages about invalid options."""
