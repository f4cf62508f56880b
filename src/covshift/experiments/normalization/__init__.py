"""Figure 1, right, and Figure 6: the normalization loss in place of a discount."""
