"""What a conversion does where: the Accelerator's place and way, its arguments, prepare, and what stands in the way."""
