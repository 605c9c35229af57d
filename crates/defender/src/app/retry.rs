//! Retries a start until its servers answer.

use std::time::Duration;

use super::{ConnectError, Log};

/// Delay before the first retry; it doubles up to [`MAX_RETRY_DELAY`].
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Attempts until one succeeds. An unavailable server is retried for as long as it takes; a refusal is an error. `on_wait` is called with the reason before each wait.
pub(super) async fn retry_until_available<T, F>(
    log: &Log,
    mut attempt: impl FnMut() -> F,
    on_wait: impl Fn(&str),
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, ConnectError>>,
{
    let mut delay = INITIAL_RETRY_DELAY;
    loop {
        let error = match attempt().await {
            Err(error) if error.is_retryable() => error.to_string(),
            settled => return settled,
        };
        on_wait(&error);
        log(&format!("INITIALIZATION: {error}; trying again in {} s", delay.as_secs()));
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::*;
    use crate::store::StoreError;

    fn unavailable() -> ConnectError {
        let error = StoreError::Unavailable("silent".to_owned());
        ConnectError::Charts { location: "there".to_owned(), error }
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_doubles_up_to_half_a_minute_and_each_wait_is_logged() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log: Log = Arc::new({
            let lines = lines.clone();
            move |line: &str| lines.lock().unwrap().push(line.to_owned())
        });
        let (began, attempts, waits) = (Instant::now(), RefCell::new(Vec::new()), RefCell::new(0));
        let attempt = || {
            attempts.borrow_mut().push(began.elapsed().as_secs());
            let settled = attempts.borrow().len() == 8;
            async move { if settled { Ok(7) } else { Err(unavailable()) } }
        };
        let started = retry_until_available(&log, attempt, |_| *waits.borrow_mut() += 1).await;
        assert_eq!(started.unwrap(), 7);
        assert_eq!(*attempts.borrow(), [0, 1, 3, 7, 15, 31, 61, 91]);
        assert_eq!(*waits.borrow(), 7);
        let first = "INITIALIZATION: there: the chart store does not answer: silent; trying again in 1 s";
        let lines = lines.lock().unwrap();
        assert_eq!((lines.len(), &*lines[0]), (7, first));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_an_error_immediately() {
        let refused = StoreError::Refused("another version".to_owned());
        let error = ConnectError::Charts { location: "there".to_owned(), error: refused };
        let error = RefCell::new(Some(error));
        let attempt = || async { Err::<(), _>(error.take().expect("one attempt")) };
        let log: Log = Arc::new(|line: &str| panic!("logged {line}"));
        assert!(retry_until_available(&log, attempt, |_| panic!("waited")).await.is_err());
    }
}
