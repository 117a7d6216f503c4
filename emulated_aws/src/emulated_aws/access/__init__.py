"""Who calls, and what is refused: identities, the rules that calls pass, and the words of refusals."""
