//! Tasks of a training step.

use turnwise_core::{EnvError, Purpose, Seed, Task, Tasks};

/// An endless seeded order of tasks: each pass has every task once, shuffled.
#[derive(Clone)]
pub struct TaskOrder {
    tasks: Tasks,
    seed: u64,
}

impl TaskOrder {
    /// Creates the order; `None` if there are no tasks.
    pub fn new(tasks: Tasks, seed: u64) -> Option<Self> {
        (!tasks.is_empty()).then_some(Self { tasks, seed })
    }

    /// Returns `count` tasks from position `first`. The result depends only on the seed and the
    /// arguments.
    ///
    /// # Errors
    /// Fails if a task's data cannot be read.
    pub fn draw(&self, first: u64, count: usize) -> Result<Vec<Task>, EnvError> {
        let length = self.tasks.len();
        let mut pass = None;
        let mut order: Vec<usize> = Vec::new();
        (first..first + count as u64)
            .map(|position| {
                let this = position / length as u64;
                if pass != Some(this) {
                    order = (0..length).collect();
                    Seed::derive(self.seed, Purpose::Tasks, &[this]).rng().shuffle(&mut order);
                    pass = Some(this);
                }
                self.tasks.get(order[(position % length as u64) as usize])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(count: usize) -> TaskOrder {
        let tasks = (0..count).map(|index| Task::new(format!("t{index}"), "", "")).collect();
        TaskOrder::new(Tasks::Made(tasks), 3).unwrap()
    }

    #[test]
    fn every_task_comes_once_a_pass() {
        let order = order(10);
        let mut seen: Vec<String> =
            (0..5).flat_map(|step| order.draw(4 * step, 4).unwrap()).map(|task| task.id).collect();
        let second = seen.split_off(10);
        assert_ne!(seen, second, "each pass has its own order");
        for mut pass in [seen, second] {
            pass.sort();
            pass.dedup();
            assert_eq!(pass.len(), 10);
        }
    }

    #[test]
    fn a_draw_depends_on_its_place_only() {
        let drawn = |first, count| order(7).draw(first, count).unwrap();
        assert_eq!(drawn(12, 3), drawn(12, 3));
        assert_eq!(drawn(12, 3)[1..], drawn(13, 2));
        assert!(TaskOrder::new(Tasks::Made(Vec::new()), 0).is_none());
    }
}
