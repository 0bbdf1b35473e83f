//! Runs training, evaluation and the command line, including methods registered in Python.
//!
//! Work runs on a thread without the GIL. The calling thread passes events to a Python function and
//! checks for signals, so that Ctrl-C stops the work safely.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Value, json};
use turnwise_cli::Registries;
use turnwise_cli::library::{self, evaluate_point};
use turnwise_cli::train::{EvaluationPoint, Event, Observer, RunEnd, TrainError};

use crate::methods::{caused, known};
use crate::refused;

const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

const TASK_INTERVAL: Duration = Duration::from_millis(500);

fn registries() -> Registries {
    Registries { methods: known(), ..turnwise_cli::builtin() }
}

/// Trains like `turnwise train ARGUMENTS`, reporting events as JSON. Returns the run directory, and
/// whether the run is finished.
#[pyfunction]
pub(crate) fn train(
    py: Python<'_>,
    arguments: Vec<OsString>,
    report: Py<PyAny>,
) -> PyResult<(OsString, bool)> {
    let work = move |events: Sender<Value>, stop: Arc<AtomicBool>| {
        let mut root = OsString::new();
        let mut observer = Reporter { events, stop: Arc::clone(&stop), last: None };
        let end = library::train(registries(), &arguments, &mut observer, &stop, &mut |run| {
            run.directory().root().as_os_str().clone_into(&mut root);
        })?;
        Ok((root, end == RunEnd::Finished))
    };
    supervised(py, &report, work)
}

/// Evaluates like `turnwise eval ARGUMENTS`; returns the splits' results as JSON.
#[pyfunction]
pub(crate) fn evaluate(py: Python<'_>, arguments: Vec<OsString>, report: Py<PyAny>) -> PyResult<String> {
    let work = move |events: Sender<Value>, stop: Arc<AtomicBool>| {
        let mut tasks = Reporter { events: events.clone(), stop: Arc::clone(&stop), last: None };
        let results = library::evaluate(
            registries(),
            &arguments,
            &stop,
            &mut |note| drop(events.send(json!({ "event": "note", "text": note }))),
            &mut |split, finished, total, solved| tasks.tasks(split, finished, total, solved),
        )?;
        Ok(serde_json::to_string(&results)?)
    };
    supervised(py, &report, work)
}

/// Runs the command line, whose first argument is the program name, and returns the exit status.
/// `command` is the command line that starts this program again, for example for the runs of a
/// sweep.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>, command: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = turnwise_cli::run_with(registries(), &arguments, command);
        (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(1)
    })
}

/// Runs `work` on a thread; an exception raised by `report`, or Ctrl-C, stops it.
fn supervised<T: Send + 'static>(
    py: Python<'_>,
    report: &Py<PyAny>,
    work: impl FnOnce(Sender<Value>, Arc<AtomicBool>) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (events, received) = channel();
    let received = Mutex::new(received);
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let stop = Arc::clone(&stop);
        let named = thread::Builder::new().name("turnwise".to_owned());
        named.spawn(move || work(events, stop)).map_err(|error| PyOSError::new_err(error.to_string()))?
    };
    let mut raised: Option<PyErr> = None;
    loop {
        let next = py.detach(|| next_event(&received));
        let reported = match next {
            Ok(event) if raised.is_none() => report.call1(py, (event.to_string(),)).map(drop),
            Err(RecvTimeoutError::Disconnected) => break,
            _ => Ok(()),
        };
        if let Err(error) = reported.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::SeqCst);
            raised.get_or_insert(error);
        }
    }
    let outcome = py.detach(|| thread.join());
    let outcome = match outcome {
        Ok(outcome) => outcome.map_err(|error| caused(py, exception(&error))),
        Err(_) => Err(PyRuntimeError::new_err("the work ended unexpectedly; standard error says why")),
    };
    match (raised, outcome) {
        (None, outcome) => outcome,
        (Some(raised), outcome) => {
            if let Err(error) = outcome {
                raised.set_cause(py, Some(error));
            }
            Err(raised)
        }
    }
}

fn next_event(received: &Mutex<Receiver<Value>>) -> Result<Value, RecvTimeoutError> {
    received.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNAL_INTERVAL)
}

/// Returns a `ValueError` for invalid arguments or settings, an `OSError` for file errors, and a
/// `RuntimeError` for all others.
fn exception(error: &anyhow::Error) -> PyErr {
    let text = library::described(error);
    for cause in error.chain() {
        match cause.downcast_ref::<TrainError>() {
            Some(TrainError::Config { .. } | TrainError::Settings(_) | TrainError::Credit(_)) => {
                return PyValueError::new_err(text);
            }
            Some(TrainError::Io(error)) => return of_file(&error.source, text),
            _ => {}
        }
        if let Some(source) = cause.downcast_ref::<std::io::Error>() {
            return of_file(source, text);
        }
        if cause.downcast_ref::<turnwise_cli::library::ArgumentError>().is_some() {
            return refused(text);
        }
    }
    PyRuntimeError::new_err(text)
}

fn of_file(error: &std::io::Error, text: String) -> PyErr {
    match error.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

struct Reporter {
    events: Sender<Value>,
    stop: Arc<AtomicBool>,
    last: Option<Instant>,
}

impl Reporter {
    fn send(&self, event: Value) {
        let _ = self.events.send(event);
    }

    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= TASK_INTERVAL);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    fn tasks(&mut self, split: &str, finished: usize, total: usize, solved: usize) {
        if self.is_due() || finished == total {
            let (event, done) = ("evaluating", finished);
            self.send(
                json!({ "event": event, "split": split, "done": done, "total": total, "solved": solved }),
            );
        }
    }
}

impl Observer for Reporter {
    fn event(&mut self, event: Event<'_>) {
        let event = match event {
            Event::Stage(text) => json!({ "event": "stage", "text": text }),
            Event::Note(text) => json!({ "event": "note", "text": text }),
            Event::Demonstrations { played, total } => {
                if !self.is_due() {
                    return;
                }
                json!({ "event": "demonstrations", "done": played, "total": total })
            }
            Event::Rollout { finished, total, solved, tokens, .. } => {
                if !self.is_due() {
                    return;
                }
                json!({ "event": "rollout", "done": finished, "total": total, "solved": solved, "tokens": tokens })
            }
            Event::Step { position, total, metrics } => json!({
                "event": "step", "phase": position.phase, "step": position.step, "total": total, "metrics": metrics
            }),
            Event::Checkpoint(path) => json!({ "event": "checkpoint", "path": path }),
        };
        self.send(event);
    }

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        let stop = Arc::clone(&self.stop);
        let events = self.events.clone();
        let outcome = evaluate_point(
            point,
            &stop,
            &mut |split, finished, total, solved| self.tasks(split, finished, total, solved),
            &mut |label, result| {
                drop(events.send(json!({ "event": "evaluation", "at": label, "result": result })));
            },
        )?;
        Ok(match outcome {
            ControlFlow::Continue(_) => ControlFlow::Continue(()),
            ControlFlow::Break(()) => ControlFlow::Break(()),
        })
    }
}
