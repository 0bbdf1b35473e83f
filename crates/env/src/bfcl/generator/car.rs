//! Requests about a car and about numbers.

use super::request::{Draw, Request, Scene, TOPICS, texts};
use crate::python::values::{Dict, Value};

const ROADS: [[(&str, &str); 2]; 6] = [
    [("Rivermist", "83214"), ("Stonebrook", "74532")],
    [("Maplecrest", "56108"), ("Silverpine", "62947")],
    [("Shadowridge", "71354"), ("Sunset Valley", "83462")],
    [("Oakendale", "47329"), ("Willowbend", "52013")],
    [("Crescent Hollow", "69238"), ("Autumnville", "51479")],
    [("San Francisco", "94016"), ("Rivermist", "83214")],
];

const DOORS: [&str; 4] = ["driver", "passenger", "rear_left", "rear_right"];

pub(super) fn vehicle(draw: &mut Draw) -> Scene {
    let fuel = draw.number(5, 20);
    let mut config = Dict::new();
    config.insert("fuelLevel", fuel as f64);
    config.insert("batteryVoltage", draw.number(118, 130) as f64 / 10.0);
    config.insert("engineState", "stopped");
    config.insert("frontLeftTirePressure", draw.number(28, 36) as f64);
    config.insert("frontRightTirePressure", draw.number(28, 36) as f64);
    let [filled, degrees, fan] = [draw.number(1, 28), draw.number(16, 28), draw.number(1, 10) * 10];
    let mode = draw.word(&["cool", "heat", "defrost"]);
    let mut address = || format!("{} {} Street", draw.number(1, 99), capital(draw.word(&TOPICS)));
    let (place, goal) = (address(), address());
    let lights = draw.word(&["on", "off", "auto"]);
    let mut road = ROADS[draw.0.below(ROADS.len())];
    draw.0.shuffle(&mut road);
    let [(from, start), (to, end)] = road;
    let liters = draw.number(2, 80);
    let option = draw.word(&["fuel", "battery", "climate", "engine"]);
    let requests = vec![
        Request::new(match draw.number(0, 1) {
            0 => {
                format!("Fill {filled} gallons of fuel into the tank and switch the headlights to {lights}.")
            }
            _ => format!(
                "The car needs {filled} gallons more fuel, and the headlights should be set to {lights}."
            ),
        })
        .call("fillFuelTank", [("fuelAmount", filled.into())])
        .call("setHeadlights", [("mode", lights.into())])
        .vaguely(
            format!("Fill fuel into the tank and switch the headlights to {lights}."),
            format!("Fill in {filled} gallons."),
        ),
        Request::new(match draw.number(0, 1) {
            0 => format!("Navigate to {place}."),
            _ => format!("I want to drive to {place}, set the navigation."),
        })
        .call("set_navigation", [("destination", place.as_str().into())])
        .vaguely("Set the navigation for me.", format!("I want to go to {place}.")),
        Request::new(format!(
            "Set the climate control to {degrees} degrees celsius, fan {fan}, mode {mode}."
        ))
        .call(
            "adjustClimateControl",
            [("temperature", degrees.into()), ("fanSpeed", fan.into()), ("mode", mode.into())],
        )
        .vaguely(
            format!("Set the climate control to fan {fan} and mode {mode}."),
            format!("To {degrees} degrees celsius."),
        ),
        Request::new(format!(
            "Lock all four doors, press the brake fully, start the engine and navigate to {goal}."
        ))
        .call("lockDoors", [("unlock", false.into()), ("door", texts(DOORS))])
        .call("pressBrakePedal", [("pedalPosition", 1i64.into())])
        .call("startEngine", [("ignitionMode", "START".into())])
        .call("set_navigation", [("destination", goal.as_str().into())]),
        Request::new(format!("How many gallons are {liters} liters? And show me the state of the {option}."))
            .call("liter_to_gallon", [("liter", liters.into())])
            .call("displayCarStatus", [("option", option.into())]),
        Request::new(format!("How far is it from {from} to {to}?"))
            .lookup("get_zipcode_based_on_city", [("city", from.into())])
            .lookup("get_zipcode_based_on_city", [("city", to.into())])
            .call("estimate_distance", [("cityA", start.into()), ("cityB", end.into())]),
    ];
    Scene { config, requests }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn listed(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn maths(draw: &mut Draw) -> Scene {
    let lists: [Vec<i64>; 4] =
        std::array::from_fn(|_| (0..draw.number(3, 5)).map(|_| draw.number(1, 99)).collect());
    let values = |place: usize| -> Value { texts(lists[place].iter().copied()) };
    let numbers = |place: usize| [("numbers", values(place))];
    let (part, whole) = (draw.number(1, 99), draw.number(100, 900));
    let [a, b, length] = [draw.number(10, 999), draw.number(10, 99), draw.number(2, 900)];
    let (unit_in, unit_out) = [("km", "m"), ("m", "cm"), ("cm", "mm"), ("m", "km")][draw.0.below(4)];
    let units = [("value", length.into()), ("unit_in", unit_in.into()), ("unit_out", unit_out.into())];
    let requests = vec![
        Request::new(format!("What is the mean of {}?", listed(&lists[0]))).call("mean", numbers(0)),
        Request::new(format!("Add up {}.", listed(&lists[1]))).call("sum_values", numbers(1)),
        Request::new(format!("Which is the largest of {}?", listed(&lists[2]))).call("max_value", numbers(2)),
        Request::new(format!("Which is the smallest of {}?", listed(&lists[3])))
            .call("min_value", numbers(3)),
        Request::new(format!("How many percent of {whole} are {part}?"))
            .call("percentage", [("part", part.into()), ("whole", whole.into())]),
        Request::new(format!("What is {a} times {b}?")).call("multiply", [("a", a.into()), ("b", b.into())]),
        Request::new(format!("What is {a} minus {b}?")).call("subtract", [("a", a.into()), ("b", b.into())]),
        Request::new(format!("Convert {length} {unit_in} to {unit_out}.")).call("si_unit_conversion", units),
    ];
    Scene { config: Dict::new(), requests }
}
