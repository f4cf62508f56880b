"""Figure 2: the corrected agent on several games."""
