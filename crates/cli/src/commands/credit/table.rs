use turnwise_core::{StageRecord, Trajectory};
use turnwise_credit::{fact_meaning, stage_rule};
use turnwise_trajectory_io::{DumpBatch, Row};

use crate::console::{visible, wrap};

const WIDTH: usize = 100;
const ACTION: usize = 50;

pub(super) fn group(step: &DumpBatch, number: usize, rows: &[Row], several_steps: bool) -> String {
    let trajectories = &step.batch.groups[number].trajectories;
    let mut lines = Vec::new();
    if let Some(row) = rows.first() {
        let name = row.group.as_str().map_or_else(|| row.group.to_string(), str::to_owned);
        let mut head = format!("group {}", shortened(&visible(&name), 24));
        if several_steps {
            head.push_str(&format!(" of step {}", row.step));
        }
        let mean = rows.iter().map(|row| row.outcome).sum::<f64>() / rows.len() as f64;
        let mut tail = format!(
            "{}, mean return {}",
            counted(rows.len(), "trajectory", "trajectories"),
            number_text(mean)
        );
        let known: Vec<bool> = rows.iter().filter_map(|row| row.success).collect();
        if !known.is_empty() {
            let solved = known.iter().filter(|&&solved| solved).count();
            tail.push_str(&format!(", {solved} of {} solved", known.len()));
        }
        let room = WIDTH.saturating_sub(head.chars().count() + tail.chars().count() + 4);
        let task = shortened(&visible(&row.task), room);
        lines.push(
            [head, task, tail].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("  "),
        );
    }
    for (row, trajectory) in rows.iter().zip(trajectories) {
        lines.push(String::new());
        lines.extend(turns(row, trajectory));
    }
    lines.join("\n")
}

fn turns(row: &Row, trajectory: &Trajectory) -> Vec<String> {
    let mut head = format!("  trajectory {}  return {}", row.sample, number_text(row.outcome));
    head.push_str(match row.success {
        Some(true) => "  solved",
        Some(false) => "  not solved",
        None => "",
    });
    head.push_str(&format!("  (line {})", row.line));
    let mut lines = vec![head];
    if trajectory.turns.is_empty() {
        lines.push("    no turns".into());
        return lines;
    }
    lines.push(format!("  {:>6}  {:<ACTION$}  {:>8}  {:>10}", "turn", "action", "reward", "advantage"));
    for (index, turn) in trajectory.turns.iter().enumerate() {
        let action = shortened(&visible(&turn.action), ACTION);
        let padding = " ".repeat(ACTION - action.chars().count());
        let (reward, advantage) = (number_text(turn.reward), signed(row.advantages[index]));
        let mut line = format!("  {index:>6}  {action}{padding}  {reward:>8}  {advantage:>10}");
        if !turn.valid {
            line.push_str("  invalid");
        }
        if row.outliers.as_ref().is_some_and(|outliers| outliers[index]) {
            line.push_str("  outlier");
        }
        lines.push(line);
        for stage in row.explanation.iter().flat_map(|explanation| &explanation[index]) {
            lines.extend(self::stage(stage));
        }
    }
    lines
}

pub(super) fn legend(rows: &[Row]) -> String {
    let records = rows.iter().flat_map(|row| row.explanation.iter().flatten().flatten());
    let mut stages: Vec<(&str, Vec<&str>)> = Vec::new();
    for record in records {
        let stage: &str = &record.stage;
        let at = stages.iter().position(|(name, _)| *name == stage).unwrap_or_else(|| {
            stages.push((stage, Vec::new()));
            stages.len() - 1
        });
        for (fact, _) in &record.facts.0 {
            let fact: &str = fact;
            if !stages[at].1.contains(&fact) {
                stages[at].1.push(fact);
            }
        }
    }
    let mut lines = Vec::new();
    for (stage, facts) in stages {
        let Some(rule) = stage_rule(stage) else { continue };
        lines.push(wrap(&format!("{stage}: {rule}"), WIDTH - 4).replace('\n', "\n    "));
        for fact in facts {
            if let Some(meaning) = fact_meaning(stage, fact) {
                let indent = format!("\n{}", " ".repeat(24));
                let meaning = wrap(meaning, WIDTH - 24).replace('\n', &indent);
                lines.push(format!("    {fact:<18}  {meaning}"));
            }
        }
    }
    lines.join("\n")
}

fn stage(stage: &StageRecord) -> Vec<String> {
    let start = format!("          {:<9} {:>10}  ", stage.stage, signed(stage.advantage));
    let indent = " ".repeat(start.chars().count());
    let mut lines = vec![start];
    for (index, (name, value)) in stage.facts.0.iter().enumerate() {
        let fact = format!("{name} {}", number_text(*value));
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if index == 0 {
            lines[last].push_str(&fact);
        } else if used + 2 + fact.chars().count() < WIDTH {
            lines[last].push_str(&format!(", {fact}"));
        } else {
            lines[last].push(',');
            lines.push(format!("{indent}{fact}"));
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

pub(in crate::commands) fn signed(value: f64) -> String {
    let text = format!("{value:+.4}");
    if text.trim_start_matches(['+', '-']) == "0.0000" { "0.0000".to_owned() } else { text }
}

pub(in crate::commands) fn number_text(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

pub(in crate::commands) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(in crate::commands) fn shortened(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_fit() {
        assert_eq!(shortened("go  to\nshelf", 20), "go to shelf");
        assert_eq!(shortened("go to the shelf", 7), "go to…");
        assert_eq!(number_text(10.0), "10");
        assert_eq!(number_text(-0.00001), "0");
        assert_eq!(number_text(0.12345), "0.1235");
        assert_eq!(
            [signed(0.25), signed(-2.0), signed(-1e-9), signed(1e-9)],
            ["+0.2500", "-2.0000", "0.0000", "0.0000"]
        );
    }
}
