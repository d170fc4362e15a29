"""Language models and the stages that ask them; a stage returns a value and writes nothing."""
