//! One setting, and the table of all of them for the documentation.

use crate::Kind;

/// A setting whose values have the type of `K`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<K> {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Name of the flag, without the leading dashes.
    pub flag: &'static str,
    /// Type of the value: unit and range.
    pub kind: K,
    /// Default as it is written; empty if there is none, or if it depends on other settings.
    pub default: &'static str,
    /// Help text.
    pub help: &'static str,
}

/// A setting of any type, for flags and documentation.
pub trait AnySetting: Sync {
    /// Returns the name of the environment variable.
    fn name(&self) -> &'static str;

    /// Returns the name of the flag, without the leading dashes.
    fn flag(&self) -> &'static str;

    /// Returns the default as it is written; empty if there is none.
    fn default(&self) -> &'static str;

    /// Returns the help text.
    fn help(&self) -> &'static str;

    /// Returns the allowed values; empty if any text is allowed.
    fn allowed(&self) -> String;

    /// Returns whether its value must not be shown.
    fn is_secret(&self) -> bool;

    /// Returns whether the default is an allowed value.
    fn default_is_allowed(&self) -> bool;
}

impl<K: Kind> AnySetting for Setting<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn flag(&self) -> &'static str {
        self.flag
    }

    fn default(&self) -> &'static str {
        self.default
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn allowed(&self) -> String {
        self.kind.allowed()
    }

    fn is_secret(&self) -> bool {
        K::IS_SECRET
    }

    fn default_is_allowed(&self) -> bool {
        self.default.is_empty() || self.kind.parse(self.default).is_some()
    }
}

/// Returns the settings as a table in Markdown.
pub fn markdown<'a>(settings: impl IntoIterator<Item = &'a &'a dyn AnySetting>) -> String {
    let mut table = "| variable | default | allowed | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in settings {
        let default = match setting.default() {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let (name, allowed, help) = (setting.name(), setting.allowed(), setting.help());
        table += &format!("| `{name}` | {default} | {allowed} | {help} |\n");
    }
    table
}
