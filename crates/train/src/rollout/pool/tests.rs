use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use turnwise_core::Task;

use super::*;

/// Goals and actions script the behavior: `ok`, `sleep N` (milliseconds), `turn N` (one call at a
/// time), `busy N` (N transient errors first), `broken`, `held` (until released), `hang`, `panic`.
#[derive(Default)]
struct Scripted {
    made: AtomicUsize,
    calls: AtomicUsize,
    closed: AtomicUsize,
    batches: Mutex<Vec<usize>>,
    batch_limit: usize,
    turn: Mutex<()>,
    hold: Mutex<Option<Hold>>,
    limits_calls: bool,
    room: usize,
    episodes: AtomicUsize,
    most: AtomicUsize,
}

struct Hold {
    begun: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

struct Held {
    begun: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Held {
    fn wait(&self) {
        self.begun.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }
}

fn holding(batch_limit: usize) -> (Arc<Scripted>, Held) {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let hold = Mutex::new(Some(Hold { begun, go_on: may_go_on }));
    (Arc::new(Scripted { batch_limit, hold, ..Scripted::default() }), Held { begun: has_begun, go_on })
}

struct Episode(Arc<Scripted>);

impl Episode {
    fn act(&self, script: &str) -> Result<(), EnvError> {
        let call = self.0.calls.fetch_add(1, Ordering::SeqCst);
        let (what, number) = script.split_once(' ').unwrap_or((script, "0"));
        let number: usize = number.parse().unwrap();
        match what {
            "sleep" => std::thread::sleep(Duration::from_millis(number as u64)),
            "turn" => {
                let _turn = self.0.turn.lock().unwrap();
                std::thread::sleep(Duration::from_millis(number as u64));
            }
            "busy" if call < number => return Err(EnvError::Transient(format!("busy at call {call}"))),
            "broken" => return Err(EnvError::Other("broken".into())),
            "held" => {
                let hold = self.0.hold.lock().unwrap();
                let Hold { begun, go_on } = hold.as_ref().unwrap();
                begun.send(()).unwrap();
                go_on.recv().unwrap();
            }
            "hang" => {
                let (_open, never) = mpsc::channel::<()>();
                let _ = never.recv_timeout(Duration::from_secs(20));
            }
            "panic" => panic!("on purpose"),
            _ => {}
        }
        Ok(())
    }
}

impl Environment for Episode {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        let now = self.0.episodes.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(now, Ordering::SeqCst);
        self.act(&task.goal).map(|()| Observation::new(task.id.clone()))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.act(&action.text()).map(|()| Step::default())
    }

    fn close(&mut self) {
        self.0.episodes.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

struct World(Arc<Scripted>);

impl TaskSet for World {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn splits(&self) -> Vec<String> {
        Vec::new()
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(Vec::new())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        self.0.made.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Episode(Arc::clone(&self.0))))
    }

    fn batch_limit(&self) -> usize {
        self.0.batch_limit.max(1)
    }

    fn limits_calls(&self) -> bool {
        self.0.limits_calls
    }

    fn free_episodes(&self) -> Option<usize> {
        (self.0.room > 0).then(|| self.0.room.saturating_sub(self.0.episodes.load(Ordering::SeqCst)))
    }

    fn step_many(&self, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
        self.0.batches.lock().unwrap().push(pending.len());
        pending.iter_mut().map(|pending| pending.environment.step(pending.action)).collect()
    }
}

fn calls(threads: usize) -> EnvCalls {
    EnvCalls { threads, timeout: Duration::from_secs(10), retries: 2, backoff: Duration::from_millis(1) }
}

fn pool(world: &Arc<Scripted>, calls: EnvCalls) -> EnvPool {
    EnvPool::new(Arc::new(World(Arc::clone(world))), calls)
}

fn job(goal: &str) -> Job {
    Job::new(task(goal), 0, 0)
}

fn task(goal: &str) -> Task {
    Task::new(goal, "", goal)
}

fn seed() -> Seed {
    Seed::derive(0, turnwise_core::Purpose::Environment, &[])
}

type Done = (Ticket, Result<Box<dyn Environment>, EnvError>);

fn all(lane: &mut LanePool) -> Vec<Done> {
    let mut outcomes = Vec::new();
    while lane.open() > 0 {
        let until = Instant::now() + Duration::from_secs(30);
        outcomes.extend(lane.poll(until).into_iter().map(|(ticket, outcome)| match outcome {
            Outcome::Begun(environment, _) | Outcome::Stepped(environment, _) => (ticket, Ok(environment)),
            Outcome::Failed(error) => (ticket, Err(error)),
        }));
    }
    outcomes
}

fn one(lane: &mut LanePool) -> Result<Box<dyn Environment>, EnvError> {
    all(lane).pop().unwrap().1
}

#[test]
fn slow_calls_hold_nothing_up() {
    let (world, held) = holding(1);
    let pool = pool(&world, calls(2));
    let mut lane = pool.lane();
    let slow = lane.begin(job("held"), seed());
    held.wait();
    let nothing = lane.poll(Instant::now() + Duration::from_millis(20));
    assert!(nothing.is_empty(), "the deadline holds");
    let quick = lane.begin(job("ok"), seed());
    // If blocked, the quick call would end after the slow one, which times out.
    let first = lane.poll(Instant::now() + Duration::from_secs(30));
    assert_eq!(first.into_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>(), [quick]);
    held.go_on();
    assert_eq!(all(&mut lane).into_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>(), [slow]);
}

#[test]
fn a_call_that_hangs_is_given_up_and_its_thread_replaced() {
    let world = Arc::new(Scripted::default());
    let pool = pool(&world, EnvCalls { timeout: Duration::from_millis(100), ..calls(1) });
    let mut lane = pool.lane();
    let hanging = lane.begin(job("hang"), seed());
    let behind = lane.begin(job("ok"), seed());
    let outcomes = all(&mut lane);
    assert_eq!(outcomes.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [hanging, behind]);
    let error = outcomes[0].1.as_ref().err().unwrap();
    assert!(matches!(error, EnvError::Timeout { operation, .. } if operation == "reset"), "{error}");
    assert!(outcomes[1].1.is_ok());
}

#[test]
fn the_wait_for_a_turn_costs_nothing_where_the_world_limits_its_calls() {
    let world = Arc::new(Scripted { limits_calls: true, ..Scripted::default() });
    let pool = pool(&world, EnvCalls { timeout: Duration::from_millis(100), ..calls(4) });
    let mut lane = pool.lane();
    for _ in 0..8 {
        lane.begin(job("turn 50"), seed());
    }
    // The last of every four calls waits for 150 ms.
    assert!(all(&mut lane).iter().all(|(_, begun)| begun.is_ok()));
    assert_eq!(world.calls.load(Ordering::SeqCst), 8, "none was given up and carried out all the same");
}

#[test]
fn steps_that_go_together_have_the_time_of_all() {
    let (world, held) = holding(4);
    let pool = pool(&world, EnvCalls { timeout: Duration::from_secs(1), ..calls(1) });
    let mut lane = pool.lane();
    (0..5).for_each(|_| {
        lane.begin(job("ok"), seed());
    });
    let mut environments: Vec<_> = all(&mut lane).into_iter().map(|(_, begun)| begun.unwrap()).collect();
    lane.step(environments.pop().unwrap(), "held".into());
    held.wait();
    for environment in environments {
        lane.step(environment, "sleep 300".into());
    }
    held.go_on();
    assert!(all(&mut lane).iter().all(|(_, step)| step.is_ok()));
    assert_eq!(*world.batches.lock().unwrap(), [4]);
}

#[test]
fn transient_errors_are_tried_again_and_others_are_not() {
    let world = Arc::new(Scripted::default());
    let pool = pool(&world, calls(1));
    let mut lane = pool.lane();
    let made = |world: &Scripted| world.calls.swap(0, Ordering::SeqCst);
    lane.begin(job("busy 2"), seed());
    let environment = one(&mut lane).unwrap();
    assert_eq!(made(&world), 3);
    lane.step(environment, "busy 1".into());
    let environment = one(&mut lane).unwrap();
    assert_eq!(made(&world), 2);
    lane.step(environment, "busy 9".into());
    assert!(one(&mut lane).err().unwrap().is_transient());
    assert_eq!(made(&world), 3);
    lane.begin(job("broken"), seed());
    assert!(!one(&mut lane).err().unwrap().is_transient());
    assert_eq!(made(&world), 1);
    lane.begin(job("panic"), seed());
    assert!(one(&mut lane).err().unwrap().to_string().contains("panicked"));
    lane.begin(job("ok"), seed());
    assert!(one(&mut lane).is_ok());
}

#[test]
fn environments_are_closed_and_kept_and_those_that_failed_are_not() {
    let world = Arc::new(Scripted::default());
    let pool = pool(&world, calls(1));
    let mut lane = pool.lane();
    for _ in 0..3 {
        lane.begin(job("ok"), seed());
        let environment = one(&mut lane).unwrap();
        lane.close(environment);
    }
    lane.begin(job("ok"), seed());
    let environment = one(&mut lane).unwrap();
    assert_eq!((world.made.load(Ordering::SeqCst), world.closed.load(Ordering::SeqCst)), (1, 3));
    lane.step(environment, "broken".into());
    assert!(one(&mut lane).is_err());
    lane.begin(job("ok"), seed());
    assert!(one(&mut lane).is_ok());
    assert_eq!(world.made.load(Ordering::SeqCst), 2);
}

#[test]
fn steps_that_wait_go_together_where_the_world_takes_them_so() {
    let (world, held) = holding(3);
    let pool = pool(&world, calls(1));
    let mut lane = pool.lane();
    (0..6).for_each(|_| {
        lane.begin(job("ok"), seed());
    });
    let mut environments: Vec<_> = all(&mut lane).into_iter().map(|(_, begun)| begun.unwrap()).collect();
    lane.step(environments.pop().unwrap(), "held".into());
    held.wait();
    for (place, environment) in environments.into_iter().enumerate() {
        lane.step(environment, if place == 1 { "broken" } else { "ok" }.into());
    }
    held.go_on();
    let failed: Vec<Ticket> =
        all(&mut lane).into_iter().filter(|(_, step)| step.is_err()).map(|(ticket, _)| ticket).collect();
    assert_eq!(failed, [8]);
    assert_eq!(*world.batches.lock().unwrap(), [3, 2]);
}

#[test]
fn an_episode_begins_when_the_world_has_room_and_steps_go_before_it() {
    let world = Arc::new(Scripted { room: 2, ..Scripted::default() });
    let pool = pool(&world, calls(2));
    let mut lane = pool.lane();
    for _ in 0..6 {
        lane.begin(job("sleep 5"), seed());
    }
    let mut finished = 0;
    while lane.open() > 0 {
        for (_, outcome) in lane.poll(Instant::now() + Duration::from_secs(30)) {
            match outcome {
                Outcome::Begun(environment, _) => {
                    lane.step(environment, Action::from("sleep 5"));
                }
                Outcome::Stepped(environment, _) => {
                    lane.close(environment);
                    finished += 1;
                }
                Outcome::Failed(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!((finished, world.most.load(Ordering::SeqCst)), (6, 2));
}
