"""Ours: from which states, with which weights, the ratio should be learned."""
