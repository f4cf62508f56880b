"""Figure 1, left: how the ratio's discount γ̂ changes what is learned."""
