use std::process::ExitCode;

use clap::Args;
use turnwise_credit::Pipeline;
use turnwise_eval::analysis::{Attribution, AttributionStudy, attribution};
use turnwise_train::config::Layout;
use turnwise_train::{Event, Observer as _};

use super::played::{Played, PlayedArgs};
use crate::registries::methods;
use crate::ui;

#[derive(Args)]
pub(crate) struct AttributionArgs {
    #[command(flatten)]
    played: PlayedArgs,
    /// Preset that defines the outlier turns: stapo or stapo-dynamic.
    #[arg(long, value_name = "NAME", default_value = "stapo")]
    preset: String,
}

pub(super) fn run(args: AttributionArgs) -> anyhow::Result<ExitCode> {
    let mut played = Played::new(args.played)?;
    if played.config.prompt.layout == Layout::Concatenated {
        let warning = "warning: the policy was trained with prompt.layout = \"concatenated\", and masked prompts have the windowed form, \
                       which it has never seen: what is measured is how foreign the prompt is";
        played.ui.event(Event::Note(warning.into()));
    }
    let methods = methods();
    let pipeline = Pipeline::with_registry(&methods.credit(&args.preset)?, &methods.credit)?;
    let settings = Played::settings(&played.config, &played.policy, &played.runner, played.stop);
    let ui = &mut played.ui;
    let found = attribution(&settings, &played.batch, &pipeline, &mut |done, all| {
        ui.count("attribution", done, all);
    })?;
    ui.finish();
    ui::print(&text(&found, &played.summary()));
    played.write(&found)?;
    Ok(ExitCode::SUCCESS)
}

fn text(study: &AttributionStudy, played: &str) -> String {
    let AttributionStudy { outliers, inliers, low, high, left_out } = study;
    let row = |name: &str, side: &Attribution| {
        let [both, goal, history] = side.parts;
        format!(
            "  {name:<9} {:>6} {:>10.3} {both:>14.3} {goal:>8.3} {history:>8.3}\n",
            side.turns, side.advantage
        )
    };
    let share = 100.0 * outliers.turns as f64 / (outliers.turns + inliers.turns).max(1) as f64;
    format!(
        "STAPO's outlier turns against the others; what a response owes to goal and history, in nats a token\n\
         {played}\n\n  \
         turns               advantage   goal+history     goal  history\n\
         {}{}\n  \
         {share:.1} % of the turns are outliers: {low} of unusually low entropy, {high} of unusually high; {left_out} turns are not measured",
        row("outliers", outliers),
        row("others", inliers),
    )
}
