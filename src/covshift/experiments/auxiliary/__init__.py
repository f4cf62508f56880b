"""Figure 3: the ratio as an auxiliary task, and TD-error priorities."""
