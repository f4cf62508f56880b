"""Figure 4: the mean ratio that the agent predicts in its own episodes, by γ̂."""
