"""Laws of whole tables: random histories of syncs, held against a model."""
