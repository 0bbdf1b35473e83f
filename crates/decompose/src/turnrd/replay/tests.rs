use super::*;

fn record(round: u32, id: u64) -> ReplayRecord {
    let turns = 1 + (id as usize % 3);
    ReplayRecord {
        round,
        id,
        ret: 0.5 * id as f64,
        turns: (0..turns * 3).map(|index| (index as f32 + id as f32).sin()).collect(),
        goal: vec![0.25, -1.5, id as f32],
        progress: (0..turns).map(|turn| (turn != 1).then_some(turn as f32 / 4.0)).collect(),
        goal_text: "put a cup on the desk".into(),
        actions: (0..turns).map(|turn| format!("go to shelf {turn}")).collect(),
    }
}

fn write(path: &Path, count: u64) -> Vec<u64> {
    let mut replay = Replay::append_to(path).unwrap();
    let mut ends = vec![replay.end];
    for id in 0..count {
        assert!(replay.append(&record(id as u32 / 2, id)).unwrap());
        ends.push(replay.end);
    }
    replay.sync().unwrap();
    ends
}

#[test]
fn records_come_back_and_are_kept_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replay");
    write(&path, 5);
    let mut replay = Replay::append_to(&path).unwrap();
    assert!(!replay.append(&record(0, 1)).unwrap(), "a repeated round does no harm");
    assert!(replay.append(&record(7, 1)).unwrap());
    assert!(Replay::append_to(&path).unwrap_err().to_string().contains("another process"));
    for (index, (round, id)) in [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (7, 1)].into_iter().enumerate() {
        assert_eq!(replay.read(index).unwrap(), record(round, id));
    }
    assert_eq!(replay.rounds(), [(0, 2), (1, 2), (2, 1), (7, 1)].into());
    assert_eq!(*replay.health(), ReplayHealth::default());
    assert!(Replay::open(&path).unwrap().append(&record(9, 9)).is_err());
}

#[test]
fn records_of_abandoned_steps_are_cut_off_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replay");
    let ends = write(&path, 5);
    let mut replay = Replay::append_to(&path).unwrap();
    assert_eq!(replay.cut(|round, _| round > 2).unwrap(), 0);
    assert_eq!(replay.cut(|round, id| (round, id) >= (1, 3)).unwrap(), 2);
    assert_eq!((replay.end, replay.rounds()), (ends[3], [(0, 2), (1, 1)].into()));
    let other = ReplayRecord { ret: -7.0, ..record(1, 3) };
    assert!(replay.append(&other).unwrap(), "the record is not known any more");
    drop(replay);
    let mut replay = Replay::open(&path).unwrap();
    assert_eq!((replay.len(), replay.read(3).unwrap()), (4, other));
    assert!(replay.cut(|_, _| true).is_err());
}

#[test]
fn records_that_do_not_fit_themselves_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut replay = Replay::append_to(&folder.path().join("replay")).unwrap();
    let good = record(0, 2);
    for bad in [
        ReplayRecord { turns: vec![1.0; 4], ..good.clone() },
        ReplayRecord { turns: Vec::new(), ..good.clone() },
        ReplayRecord { progress: vec![None], ..good.clone() },
        ReplayRecord { actions: vec![String::new()], ..good.clone() },
        ReplayRecord { goal: vec![0.0, f32::NAN, 0.0], ..good.clone() },
        ReplayRecord { ret: f64::INFINITY, ..good.clone() },
    ] {
        assert!(replay.append(&bad).is_err(), "{bad:?}");
    }
    assert!(replay.append(&good).unwrap());
}

#[test]
fn a_file_cut_at_any_byte_keeps_its_whole_records_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let ends = write(&whole, 4);
    let bytes = std::fs::read(&whole).unwrap();
    for length in 0..=bytes.len() {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let kept = ends.iter().skip(1).filter(|&&end| end <= length as u64).count();
        let torn =
            length as u64 - ends.iter().copied().filter(|&end| end <= length as u64).max().unwrap_or(0);
        let read = Replay::open(&cut).unwrap();
        assert_eq!((read.len(), read.health().torn_bytes), (kept, torn), "cut at {length}");
        assert!(read.health().corrupt.is_empty(), "cut at {length}");
        let mut replay = Replay::append_to(&cut).unwrap();
        for id in 0..4 {
            assert_eq!(replay.append(&record(id as u32 / 2, id)).unwrap(), id as usize >= kept);
        }
        drop(replay);
        assert!(std::fs::read(&cut).unwrap() == bytes, "cut at {length}");
    }
}

#[test]
fn a_damaged_byte_costs_one_record_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = (folder.path().join("whole"), folder.path().join("damaged"));
    let ends = write(&whole, 4);
    let bytes = std::fs::read(&whole).unwrap();
    for offset in MAGIC.len()..bytes.len() {
        let mut copy = bytes.clone();
        copy[offset] ^= 0x5a;
        std::fs::write(&damaged, &copy).unwrap();
        let mut replay = Replay::open(&damaged).unwrap();
        let hit = ends.iter().filter(|&&end| end <= offset as u64).count() - 1;
        assert_eq!(replay.len(), 3, "byte {offset}");
        let range = ends[hit]..ends[hit + 1];
        assert_eq!(replay.health().corrupt, [range], "byte {offset}");
        assert_eq!(replay.health().torn_bytes, 0, "byte {offset}");
        let left: Vec<u64> = (0..3).map(|index| replay.read(index).unwrap().id).collect();
        assert_eq!(left, (0..4).filter(|&id| id != hit as u64).collect::<Vec<_>>());
    }
    std::fs::write(&damaged, b"something else").unwrap();
    assert!(Replay::append_to(&damaged).unwrap_err().to_string().contains("not a replay"));
    assert_eq!(std::fs::read(&damaged).unwrap(), b"something else");
}

#[test]
fn damage_while_it_is_open_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replay");
    let ends = write(&path, 2);
    let mut replay = Replay::open(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ends[1] as usize - 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(replay.read(0).unwrap_err().to_string().contains("record 0"));
    assert!(replay.read(1).is_ok());
}

#[test]
fn weights_halve_and_the_split_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replay");
    write(&path, 40);
    let mut replay = Replay::append_to(&path).unwrap();
    let mut view = replay.view(vec![0, 8, 39], 19, 4.0).unwrap();
    let weights: Vec<f64> = (0..3).map(|index| view.sample(index).unwrap().weight).collect();
    assert_eq!(weights, [0.5f64.powf(19.0 / 4.0), 0.5f64.powf(15.0 / 4.0), 1.0]);
    assert!(view.sample(3).is_err());
    let (trained, held) = replay.split(5);
    assert_eq!(trained.len() + held.len(), 40);
    assert!((2..20).contains(&held.len()), "{held:?}");
    replay.append(&record(50, 0)).unwrap();
    assert_eq!(replay.split(5).1.iter().filter(|&&index| index < 40).count(), held.len());
    assert_eq!(replay.split(0).1.len(), 0);
    assert!(replay.view(vec![41], 0, 4.0).is_err() && replay.view(vec![], 0, 0.0).is_err());
}
