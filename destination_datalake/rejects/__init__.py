"""Records and values that could not be kept as they were: where they go, how many they are, when they are too many."""
