"""What keeps the learned ratio's scale: its head, and what negative outputs count as."""
