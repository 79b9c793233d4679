"""How smoothed classifiers are asked: votes over noise, nested votes, and answers that stop early."""
