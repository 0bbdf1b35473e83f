//! Built-in Python libraries with the calls that check them.

pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    calls: &'static str,
}

macro_rules! library {
    ($name:literal) => {
        Library {
            name: $name,
            source: include_str!(concat!("libraries/", $name, ".py")),
            calls: include_str!(concat!("libraries/", $name, ".calls")),
        }
    };
}

pub(super) const LIBRARIES: [Library; 10] = [
    library!("calendar_days"),
    library!("formula"),
    library!("grid"),
    library!("heap"),
    library!("intervals"),
    library!("ledger"),
    library!("matrix"),
    library!("roman"),
    library!("tables"),
    library!("words"),
];

impl Library {
    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }
}
