use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use turnwise_core::{Collective, CollectiveError};

use super::{Launch, TcpCollective};

const PATIENCE: Duration = Duration::from_secs(20);

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn connect(
    rank: usize,
    world_size: usize,
    port: u16,
    timeout: Duration,
) -> Result<TcpCollective, CollectiveError> {
    TcpCollective::connect((rank, world_size, rank), ("127.0.0.1", port), timeout)
}

/// Runs `work` on every rank, each on a thread, ranks started in the order given.
fn on_all<T: Send>(order: &[usize], work: impl Fn(&TcpCollective) -> T + Sync) -> Vec<T> {
    let port = port();
    let mut found: BTreeMap<usize, T> = std::thread::scope(|scope| {
        let threads: Vec<_> = order
            .iter()
            .map(|&rank| {
                let work = &work;
                let thread = scope.spawn(move || work(&connect(rank, order.len(), port, PATIENCE).unwrap()));
                std::thread::sleep(Duration::from_millis(20));
                (rank, thread)
            })
            .collect();
        threads.into_iter().map(|(rank, thread)| (rank, thread.join().unwrap())).collect()
    });
    (0..order.len()).map(|rank| found.remove(&rank).unwrap()).collect()
}

/// Numbers of very different sizes, so that every order of addition gives other bits.
fn lane(index: usize, length: usize) -> Vec<f32> {
    (0..length)
        .map(|place| {
            ((place * 31 + index * 17) as f32 * 0.37).sin() * 10f32.powi(((place + 5 * index) % 7) as i32)
        })
        .collect()
}

fn folded(order: impl Iterator<Item = usize>, length: usize) -> Vec<f32> {
    let mut sum: Option<Vec<f32>> = None;
    for index in order {
        let lane = lane(index, length);
        match &mut sum {
            Some(sum) => sum.iter_mut().zip(lane).for_each(|(sum, value)| *sum += value),
            None => sum = Some(lane),
        }
    }
    sum.unwrap()
}

#[test]
fn a_sum_is_taken_in_lane_order_however_the_lanes_are_spread() {
    // More than one piece, and a rest.
    let length = 600_001;
    let expected = folded(0..6, length);
    for order in [&[0, 1][..], &[2, 0, 1], &[5, 1, 0, 4, 2, 3]] {
        let sums = on_all(order, |ranks| {
            // Every rank has its own pace.
            std::thread::sleep(Duration::from_millis(10 * ((ranks.rank() * 7) % 5) as u64));
            let mut lanes: Vec<Vec<f32>> = ranks.share(6).map(|index| lane(index, length)).collect();
            let mut parts: Vec<&mut [f32]> = lanes.iter_mut().map(Vec::as_mut_slice).collect();
            ranks.all_reduce(&mut parts).unwrap();
            lanes.swap_remove(0)
        });
        for sum in sums {
            assert!(sum == expected, "{} ranks", order.len());
        }
    }
    // The comparison can fail: another order gives other bits.
    assert!(folded([2, 1, 0, 3, 4, 5].into_iter(), length) != expected);
}

#[test]
fn every_rank_hears_every_other() {
    let large = vec![7u8; 3 << 20];
    for world_size in 2..=4 {
        let order: Vec<usize> = (0..world_size).collect();
        on_all(&order, |ranks| {
            let said: Vec<String> = ranks
                .all_gather(format!("rank {}", ranks.rank()).as_bytes())
                .unwrap()
                .into_iter()
                .map(|bytes| String::from_utf8(bytes).unwrap())
                .collect();
            assert_eq!(said, (0..world_size).map(|rank| format!("rank {rank}")).collect::<Vec<_>>());
            ranks.barrier().unwrap();
            let mine = if ranks.rank() == 0 { large.clone() } else { vec![1; ranks.rank()] };
            assert!(ranks.broadcast(&mine).unwrap() == large);
            assert!(ranks.any(ranks.rank() == 1).unwrap());
            assert!(!ranks.any(false).unwrap());
            assert!(ranks.all_gather(&large).unwrap().iter().all(|bytes| *bytes == large));
        });
    }
}

#[test]
fn a_rank_that_is_gone_is_an_error_on_all_others() {
    for gone in 0..3 {
        let errors = on_all(&[0, 1, 2], |ranks| {
            ranks.barrier().unwrap();
            if ranks.rank() == gone {
                return None;
            }
            let mut values = vec![1.0; 10];
            // One operation may already be on its way.
            let first = ranks.all_reduce(&mut [&mut values]);
            Some(first.and_then(|()| ranks.barrier()).unwrap_err().to_string())
        });
        for (rank, error) in errors.into_iter().enumerate() {
            let Some(error) = error else { continue };
            assert!(error.contains(&format!("rank {rank}: lost rank")), "{error}");
            assert!(error.contains("closed the connection"), "{error}");
        }
    }
}

#[test]
fn a_rank_that_is_silent_is_an_error_too() {
    let (port, timeout) = (port(), Duration::from_millis(400));
    let mute = std::thread::spawn(move || {
        // Greets as rank 1 and says nothing ever after.
        let mut stream = loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
        };
        let mut greeting = b"turnwise".to_vec();
        greeting.extend([2u32, 1].iter().flat_map(|number| number.to_le_bytes()));
        greeting.extend(9u16.to_le_bytes());
        stream.write_all(&greeting).unwrap();
        stream
    });
    let ranks = connect(0, 2, port, timeout).unwrap();
    let stream = mute.join().unwrap();
    let error = ranks.barrier().unwrap_err().to_string();
    assert!(error.contains("lost rank 1: nothing was heard of it"), "{error}");
    drop(stream);
}

#[test]
fn one_that_works_for_long_is_not_taken_for_dead() {
    let (port, timeout) = (port(), Duration::from_millis(400));
    let slow = std::thread::spawn(move || {
        let ranks = connect(1, 2, port, timeout).unwrap();
        std::thread::sleep(4 * timeout);
        ranks.barrier().unwrap();
    });
    connect(0, 2, port, timeout).unwrap().barrier().unwrap();
    slow.join().unwrap();
}

#[test]
fn what_cannot_meet_says_why() {
    let brief = Duration::from_millis(300);
    let error = connect(0, 2, port(), brief).unwrap_err().to_string();
    assert!(error.contains("rank 1 did not come in time"), "{error}");
    let error = connect(1, 2, port(), brief).unwrap_err().to_string();
    assert!(error.contains("cannot reach rank 0"), "{error}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = connect(0, 2, taken.local_addr().unwrap().port(), brief).unwrap_err().to_string();
    assert!(error.contains("MASTER_PORT"), "{error}");
    for (other, expected) in [((1, 3), "WORLD_SIZE = 3"), ((5, 2), "rank 5 came")] {
        let port = port();
        let stranger = std::thread::spawn(move || connect(other.0, other.1, port, brief));
        let error = connect(0, 2, port, PATIENCE).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(stranger.join().unwrap().is_err());
    }
}

#[test]
fn ranks_that_do_different_things_are_told() {
    let errors = on_all(&[0, 1], |ranks| {
        let mut values = vec![0.0; 3 + ranks.rank()];
        ranks.all_reduce(&mut [&mut values]).unwrap_err().to_string()
    });
    assert!(errors.iter().any(|error| error.contains("out of step")), "{errors:?}");
}

fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, String> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    Launch::from_variables(|name| variables.get(name).map(|text| (*text).to_owned()))
        .map_err(|error| error.to_string())
}

#[test]
fn the_launcher_s_variables_are_read() {
    assert_eq!(launch(&[]), Ok(None));
    assert_eq!(launch(&[("WORLD_SIZE", "1"), ("RANK", "0")]), Ok(None));
    let base = [("WORLD_SIZE", "4"), ("RANK", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
    let found = launch(&base).unwrap().unwrap();
    assert_eq!((found.rank, found.world_size, found.local_rank, found.port), (3, 4, 3, 29500));
    let with = |name, value| {
        let mut variables = base.to_vec();
        variables.push((name, value));
        launch(&variables)
    };
    assert_eq!(with("LOCAL_RANK", "1").unwrap().unwrap().local_rank, 1);
    // torchrun's own store has the port.
    assert_eq!(with("TORCHELASTIC_USE_AGENT_STORE", "True").unwrap().unwrap().port, 29501);
    assert_eq!(with("TORCHELASTIC_USE_AGENT_STORE", "False").unwrap().unwrap().port, 29500);
    assert_eq!(with("TURNWISE_PORT", "4000").unwrap().unwrap().port, 4000);
    assert_eq!(with("TURNWISE_TIMEOUT", "1.5").unwrap().unwrap().timeout, Duration::from_millis(1500));
    for (name, value, expected) in [
        ("RANK", "4", "ranks go from 0 to 3"),
        ("RANK", "x", "not a whole number"),
        ("WORLD_SIZE", "0", "at least 1"),
        ("MASTER_PORT", "70000", "not a port"),
        ("TURNWISE_TIMEOUT", "-1", "not a number of seconds"),
    ] {
        let error = with(name, value).unwrap_err();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
    for missing in ["RANK", "MASTER_ADDR", "MASTER_PORT"] {
        let variables: Vec<_> = base.iter().copied().filter(|(name, _)| *name != missing).collect();
        assert!(launch(&variables).unwrap_err().contains(missing));
    }
}

/// The trait is what both learners share; it must stay usable behind a pointer.
#[test]
fn a_collective_is_an_object() {
    let ranks = on_all(&[0, 1], |ranks| (ranks.rank(), ranks.world_size(), ranks.local_rank()));
    assert_eq!(ranks, [(0, 2, 0), (1, 2, 1)]);
    let _: Option<Arc<dyn Collective>> = None;
}
