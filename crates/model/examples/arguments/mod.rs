//! Arguments of examples: `name=value`.

/// The arguments of this program.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    /// Takes them from the command line.
    pub(crate) fn read() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// The value of a name, where it is given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    /// The whole number of a name, or the one that stands for it.
    ///
    /// # Errors
    /// The value is no whole number.
    pub(crate) fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.text(name) {
            Some(value) => value.parse().map_err(|_| format!("{name}={value} is not a whole number")),
            None => Ok(default),
        }
    }
}
