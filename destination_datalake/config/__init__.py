"""The connector's options: what may be said, what it means, what contradicts itself."""
