from warpcert.methods.named import *  # noqa: F403
