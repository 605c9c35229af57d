//! Reads values and collects all errors.

use std::collections::BTreeMap;

use crate::{AnySetting, Kind, Setting, Whole};

/// Values of settings as they were given, by name.
#[derive(Clone, Debug, Default)]
pub struct Given(BTreeMap<String, String>);

impl Given {
    /// Returns the values of these names.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Returns the value of a setting, if it has one.
    pub fn value<K: Kind>(&self, setting: &Setting<K>) -> Option<&str> {
        self.0.get(setting.name).map(String::as_str).filter(|text| setting.kind.is_given(text))
    }

    /// Returns whether a setting has a value.
    pub fn has<K: Kind>(&self, setting: &Setting<K>) -> bool {
        self.value(setting).is_some()
    }
}

/// Parses values and collects what is wrong with them.
pub struct Parser<'a> {
    given: &'a Given,
    /// Errors found so far.
    pub errors: Vec<String>,
}

impl<'a> Parser<'a> {
    /// Parses those values.
    pub fn new(given: &'a Given) -> Self {
        Self { given, errors: Vec::new() }
    }

    /// Returns the given value; `None` if there is none, or if it is not allowed.
    pub fn given<K: Kind>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        let text = self.given.value(setting)?;
        let value = setting.kind.parse(text);
        if value.is_none() {
            let allowed = setting.kind.allowed();
            self.errors.push(format!("{} is {text:?}; allowed is {allowed}", setting.name));
        }
        value
    }

    /// Returns the given value, or the default of the setting.
    ///
    /// # Panics
    ///
    /// Panics if the setting has no default: that is a mistake in the caller.
    pub fn get<K: Kind>(&mut self, setting: &Setting<K>) -> K::Value {
        self.given(setting).unwrap_or_else(|| {
            setting.kind.parse(setting.default).unwrap_or_else(|| panic!("{} has no default", setting.name))
        })
    }

    /// Returns the given value of a setting whose largest value is that of another. Blanks alone count as not set.
    pub fn given_up_to<T>(&mut self, setting: &Setting<Whole<T>>, max: T) -> Option<T>
    where
        Whole<T>: Kind<Value = T>,
        T: Copy,
    {
        self.given.value(setting).filter(|text| !text.trim().is_empty())?;
        self.given(&Setting { kind: Whole { max, ..setting.kind }, ..*setting })
    }

    /// Returns two values that belong together; one without the other is an error.
    pub fn pair<A: Kind, B: Kind>(
        &mut self,
        one: &Setting<A>,
        other: &Setting<B>,
    ) -> Option<(A::Value, B::Value)> {
        let mut missing = |set: &dyn AnySetting, unset: &dyn AnySetting| {
            self.errors.push(format!("{} is set and {} is not; set both or none", set.name(), unset.name()));
        };
        match (self.given.has(one), self.given.has(other)) {
            (true, true) => Some((self.given(one)?, self.given(other)?)),
            (false, false) => None,
            (true, false) => {
                missing(one, other);
                None
            }
            (false, true) => {
                missing(other, one);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fraction, Seconds, Switch, Text};

    const fn setting<K>(kind: K, default: &'static str) -> Setting<K> {
        Setting { name: "X", flag: "x", kind, default, help: "" }
    }

    #[track_caller]
    fn check<K: Kind>(kind: K, text: &str, expected: Result<Option<K::Value>, &str>)
    where
        K::Value: PartialEq + std::fmt::Debug,
    {
        let given = Given::from_pairs([("X", text)]);
        let mut parser = Parser::new(&given);
        let value = parser.given(&setting(kind, ""));
        match expected {
            Ok(expected) => assert_eq!((value, &parser.errors[..]), (expected, &[][..])),
            Err(allowed) => assert_eq!(parser.errors, [format!("X is {text:?}; allowed is {allowed}")]),
        }
    }

    #[test]
    fn values_are_parsed_with_their_unit_and_range() {
        let whole = Whole { min: 1_u32, max: 9 };
        check(whole, " 9 ", Ok(Some(9)));
        check(whole, "", Ok(None));
        for wrong in ["0", "10", "one", "1.5", " "] {
            check(whole, wrong, Err("a whole number from 1 to 9"));
        }
        check(Seconds, "0.25", Ok(Some(Duration::from_millis(250))));
        for wrong in ["0", "-1", "NaN", "inf", "31536001", "2s"] {
            check(Seconds, wrong, Err("a number of seconds from 0.001 to a year"));
        }
        check(Switch, "false", Ok(Some(false)));
        check(Switch, "yes", Err("true or false"));
        check(Fraction { min: 0.001, max: 1.0 }, "1", Ok(Some(1.0)));
        check(Fraction { min: 0.001, max: 1.0 }, "7", Err("a part of the mean from 0.001 to 1"));
        check(Text, "  ", Ok(None));
        check(Text, " a ", Ok(Some(" a ".to_owned())));
    }

    #[test]
    fn a_range_can_end_at_the_value_of_another_setting() {
        let given = Given::from_pairs([("X", "5")]);
        let mut parser = Parser::new(&given);
        let setting = setting(Whole { min: 1_u32, max: 9 }, "");
        assert_eq!(parser.given_up_to(&setting, 5), Some(5));
        assert_eq!(parser.given_up_to(&setting, 4), None);
        assert_eq!(parser.errors, ["X is \"5\"; allowed is a whole number from 1 to 4"]);
    }
}
