//! Flags and environment variables of the tables of settings.

use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use phalanx_settings::{AnySetting, CONNECTIONS, DEFENDER, Given, Parser};

/// A group of settings that a command takes.
pub(crate) trait Group {
    /// Tables of its settings, in the order of the help.
    const TABLES: &[&[&dyn AnySetting]];
}

/// Settings of the stores.
#[derive(Clone, Debug)]
pub(crate) enum Stores {}

impl Group for Stores {
    const TABLES: &[&[&dyn AnySetting]] = &[CONNECTIONS];
}

/// Settings of a defender.
#[derive(Clone, Debug)]
pub(crate) enum Defender {}

impl Group for Defender {
    const TABLES: &[&[&dyn AnySetting]] = &[CONNECTIONS, DEFENDER];
}

/// Arguments that select the stores.
pub(crate) type ConnectionArgs = SettingArgs<Stores>;
/// Arguments of a defender.
pub(crate) type DefenderArgs = SettingArgs<Defender>;

/// Values of a group of settings, as they were given. A [`Parser`] checks all of them together.
#[derive(Clone, Debug)]
pub(crate) struct SettingArgs<G> {
    pub(crate) given: Given,
    group: PhantomData<G>,
}

impl<G> SettingArgs<G> {
    pub(crate) fn new(given: Given) -> Self {
        Self { given, group: PhantomData }
    }

    /// Returns a parser of the values.
    pub(crate) fn parser(&self) -> Parser<'_> {
        Parser::new(&self.given)
    }
}

fn settings<G: Group + 'static>() -> impl Iterator<Item = &'static dyn AnySetting> {
    G::TABLES.iter().copied().flatten().copied()
}

fn arg(setting: &dyn AnySetting) -> Arg {
    let help = match setting.default() {
        "" => setting.help().to_owned(),
        default => format!("{} [default: {default}]", setting.help()),
    };
    Arg::new(setting.name())
        .long(setting.flag())
        .env(setting.name())
        .value_name("VALUE")
        .help(help)
        .hide_env_values(setting.is_secret())
}

impl<G: Group + 'static> Args for SettingArgs<G> {
    fn augment_args(command: Command) -> Command {
        command.args(settings::<G>().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: Group + 'static> FromArgMatches for SettingArgs<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |setting: &dyn AnySetting| {
            let value = matches.get_one::<String>(setting.name())?;
            Some((setting.name(), value.clone()))
        };
        Ok(Self::new(Given::from_pairs(settings::<G>().filter_map(value))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
