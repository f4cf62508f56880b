"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work."""
