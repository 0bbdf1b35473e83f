//! `log.jsonl`: events with times.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::TrainError;
use crate::record::directory::RunDirectory;
use crate::record::metrics::seconds;
use crate::record::observer::{EvaluationPoint, Event, Observer};

#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    kind: &'a str,
    text: &'a str,
}

pub(crate) struct Logged<'a> {
    inner: &'a mut dyn Observer,
    file: File,
}

pub(crate) struct Remembered<'a> {
    pub(crate) inner: &'a mut dyn Observer,
    pub(crate) notes: Vec<String>,
}

impl Observer for Remembered<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Note(text) = &event {
            self.notes.push(text.clone());
        }
        self.inner.event(event);
    }

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        self.inner.evaluate(point)
    }
}

impl<'a> Logged<'a> {
    pub(crate) fn open(
        run: &RunDirectory,
        inner: &'a mut dyn Observer,
        notes: &[String],
    ) -> Result<Self, TrainError> {
        let path = run.path("log.jsonl");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| TrainError::io(&path, error))?;
        let mut log = Self { inner, file };
        for note in notes {
            log.line("note", note);
        }
        Ok(log)
    }

    fn line(&mut self, kind: &str, text: &str) {
        // Must not end a run; a full disk will fail the checkpoint.
        if let Ok(mut line) = serde_json::to_string(&Line { time: seconds(), kind, text }) {
            line.push('\n');
            let _ = self.file.write_all(line.as_bytes());
        }
    }
}

impl Observer for Logged<'_> {
    fn event(&mut self, event: Event<'_>) {
        match &event {
            Event::Stage(text) => self.line("stage", text),
            Event::Note(text) => self.line("note", text),
            Event::Checkpoint(path) => self.line("checkpoint", &path.display().to_string()),
            Event::Demonstrations { .. } | Event::Rollout { .. } | Event::Step { .. } => {}
        }
        self.inner.event(event);
    }

    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        self.line("evaluate", &point.position.label());
        self.inner.evaluate(point)
    }
}
