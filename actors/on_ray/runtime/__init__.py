"""Ray itself: joining one, starting one's own, its nodes, its tokens and where it keeps its control store."""
