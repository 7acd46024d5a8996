//! The plugin's options.

use std::time::Duration;

use crossdock_plugin_api::{Error, Options, Result};
use object_store::{BackoffConfig, RetryConfig};

/// The names and meanings of the options that are not the store's.
const OWN: [&str; 6] =
    ["timeout", "connect_timeout", "max_retries", "retry_timeout", "parallel", "part_bytes"];

/// The settings of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The time limit of one request, including its body.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// The number of times that a failed request is repeated.
    pub max_retries: usize,
    /// No request is repeated after this time.
    pub retry_timeout: Duration,
    /// The maximum number of requests at a time for one source.
    pub parallel: usize,
    /// The maximum number of bytes of one request.
    pub part_bytes: u64,
    /// The options of the store.
    pub store: Vec<(String, String)>,
}

impl Settings {
    /// # Errors
    /// "Invalid argument" if a value has the wrong form.
    pub fn new(options: &Options) -> Result<Self> {
        let number = |key: &str, default: u64, least: u64| match options.get(key) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if number >= least => Ok(number),
                _ => Err(Error::invalid_argument(format!(
                    "option '{key}': expected a whole number of at least {least}, got '{text}'"
                ))),
            },
        };
        let seconds = |key: &str, default: u64| {
            let Some(text) = options.get(key) else { return Ok(Duration::from_secs(default)) };
            let seconds = text.parse().ok().filter(|seconds| (0.001..=86400.0).contains(seconds));
            seconds.map(Duration::from_secs_f64).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "option '{key}': expected a number of seconds from 0.001 to 86400, got '{text}'"
                ))
            })
        };
        let own = |key: &str| OWN.contains(&key);
        let store = options.iter().filter(|(key, _)| !own(key));
        Ok(Self {
            timeout: seconds("timeout", 30)?,
            connect_timeout: seconds("connect_timeout", 10)?,
            max_retries: number("max_retries", 3, 0)? as usize,
            retry_timeout: seconds("retry_timeout", 60)?,
            parallel: number("parallel", 8, 1)?.min(256) as usize,
            part_bytes: number("part_bytes", 8 << 20, 4096)?,
            store: store.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }

    pub fn retry(&self) -> RetryConfig {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        };
        RetryConfig { backoff, max_retries: self.max_retries, retry_timeout: self.retry_timeout }
    }

    /// The time after which a request has ended, whatever the server does.
    pub fn deadline(&self) -> Duration {
        const MARGIN: Duration = Duration::from_secs(5);
        self.retry_timeout + self.timeout + self.connect_timeout + MARGIN
    }

    /// The names of the plugin's own options, for messages.
    pub fn own_names() -> String {
        OWN.join(", ")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn own_options_are_parsed_and_all_others_belong_to_the_store() {
        let options = Options::new().with("timeout", "0.5").with("region", "x").with("parallel", "1000");
        let settings = Settings::new(&options).unwrap();
        assert_eq!((settings.timeout, settings.parallel), (Duration::from_millis(500), 256));
        assert_eq!(settings.store, [("region".to_owned(), "x".to_owned())]);
        assert_eq!(settings.retry().max_retries, 3);
    }

    #[test]
    fn wrong_values_are_rejected() {
        let wrong = [("timeout", "0"), ("timeout", "NaN"), ("timeout", "x"), ("connect_timeout", "1e9")];
        let more = [("max_retries", "-1"), ("parallel", "0"), ("part_bytes", "4095"), ("part_bytes", "")];
        for (key, value) in wrong.into_iter().chain(more) {
            let error = Settings::new(&Options::new().with(key, value)).unwrap_err();
            assert!(error.message().starts_with(&format!("option '{key}': expected a")), "{error}");
        }
    }
}
