use std::fmt;

macro_rules! names {
    ($(#[$meta:meta])* $enum:ident { $($(#[$vmeta:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum { $($(#[$vmeta])* $variant,)+ }

        impl $enum {
            /// All of them, in the order of the declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name people and files use.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// What a provider or the broker tells the orchestrator.
    EventKind {
        /// A provider was started.
        ProviderStarted = "PROVIDER_STARTED",
        /// A provider's run completed, with gaps or without.
        ProviderCompleted = "PROVIDER_COMPLETED",
        /// A provider's run failed.
        ProviderFailed = "PROVIDER_FAILED",
        /// A provider was paused.
        ProviderPaused = "PROVIDER_PAUSED",
        /// A provider was resumed.
        ProviderResumed = "PROVIDER_RESUMED",
        /// The broker took permits back.
        QuotaRevoked = "QUOTA_REVOKED",
        /// The broker gave permits.
        QuotaGranted = "QUOTA_GRANTED",
        /// The source asked for patience (403 or 429).
        RateLimited = "RATE_LIMITED",
        /// Another hundred items were processed.
        Checkpoint = "CHECKPOINT",
    }
}

names! {
    /// How a run ended.
    Outcome {
        /// Everything the source declared was read.
        Completed = "completed",
        /// A local source held another number of records than it declared.
        CompletedWithGaps = "completed with gaps",
        /// The run could not go on; the next one resumes where it stopped.
        Failed = "failed",
        /// Somebody stopped it.
        Stopped = "stopped",
    }
}

impl Outcome {
    /// Whether a dependent may start after this.
    pub fn satisfies(self) -> bool {
        matches!(self, Self::Completed | Self::CompletedWithGaps)
    }
}
