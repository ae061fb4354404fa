//! Placement of a driver's devices and workers: which processor serves which device.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use driver::crypto_pool::CryptoWorker;
use driver::intake::{Intake, IntakeEnv};
use driver::path_worker::{self, PathWorker};
use driver::placement::{Placement, socket_workers};
use driver::protocol::Verify;
use driver::receive_worker::{self, ReceiveWorker};
use driver::worker::WorkerSocket;
use driver::workers::Workers;
use driver::{LocalSocket, Place};
use units::Duration;

use crate::clock::Clock;
use crate::device::Device;
use crate::error::StartError;
use crate::live::{LiveEnv, serve, serve_sending};
use crate::settings::DriverSettings;
use crate::worker::{PollIdle, Spawner, WorkerSettings};

/// Time for which to wait for the end of a crypto worker's thread. It ends after its current batch.
const CRYPTO_WORKER_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The sockets and workers of a driver.
pub(super) struct DriverParts<D: Device> {
    pub(super) sockets: Vec<Place<LiveEnv<D>>>,
    pub(super) workers: Workers<D::Protocol>,
}

/// Distributes the devices and starts the workers of the placement.
pub(super) fn place<D: Device>(
    settings: &DriverSettings,
    clock: &Clock,
    owner: &Waker,
    devices: Vec<D>,
    verify: Option<Verify<D::Protocol>>,
    spawner: &mut Spawner,
) -> Result<DriverParts<D>, StartError> {
    match settings.placement {
        Placement::Split => place_split(settings, clock, owner, devices, spawner),
        Placement::Pipeline => place_pipeline(settings, clock, owner, devices, verify, spawner),
        Placement::Packet(count) => place_packet(settings, clock, owner, devices, count, spawner),
        Placement::Path(count) => place_path(settings, clock, owner, devices, count, spawner),
        _ => Ok(DriverParts { sockets: all_local(devices, owner), workers: Workers::default() }),
    }
}

/// Places for `packet`: the driver serves all sockets, crypto workers encrypt and decrypt.
fn place_packet<D: Device>(
    settings: &DriverSettings,
    clock: &Clock,
    owner: &Waker,
    devices: Vec<D>,
    count: usize,
    spawner: &mut Spawner,
) -> Result<DriverParts<D>, StartError> {
    let mut pool = Vec::new();
    for number in 1..count {
        let of_worker = WorkerSettings {
            name: format!("litz-worker-{number}"),
            join_within: CRYPTO_WORKER_ENDS_WITHIN,
            if_it_panics: "the remaining workers take over its work",
            ..worker_settings(settings, clock, owner, number)
        };
        let worker = spawner.spawn_parking(of_worker, |waker| CryptoWorker::new(clock.clone(), owner.clone(), waker));
        pool.push(worker.map_err(not_started)?);
    }
    Ok(DriverParts { sockets: all_local(devices, owner), workers: Workers::of_pool(pool) })
}

/// Places for `path`: each path worker serves some of the sockets. If there are more processors
/// than sockets, the driver serves none.
fn place_path<D: Device>(
    settings: &DriverSettings,
    clock: &Clock,
    owner: &Waker,
    devices: Vec<D>,
    count: usize,
    spawner: &mut Spawner,
) -> Result<DriverParts<D>, StartError> {
    let mut places = Vec::with_capacity(devices.len());
    let mut assigned: Vec<Vec<_>> = Vec::new();
    let workers = socket_workers(count, devices.len());
    for ((index, device), worker) in devices.into_iter().enumerate().zip(workers) {
        let Some(worker) = worker else {
            places.push(Place::Local(serve(device, owner)));
            continue;
        };
        places.push(Place::Offloaded { worker, batch_max: device.batch_max() });
        assigned.resize_with(assigned.len().max(worker + 1), Vec::new);
        assigned[worker].push((index, device));
    }
    // If the driver serves a socket, path workers also encrypt and decrypt for it while they are
    // idle.
    let has_local = places.iter().any(|place| matches!(place, Place::Local(_)));
    let (mut helpers, mut paths) = (Vec::new(), Vec::new());
    for (index, devices) in assigned.into_iter().enumerate() {
        let of_worker = WorkerSettings {
            name: format!("litz-path-{}", index + 1),
            join_within: path_worker::HANG_AFTER,
            if_it_panics: "its paths cannot be used any more",
            ..worker_settings(settings, clock, owner, index + 1)
        };
        let worker = spawner.spawn_polling(of_worker, |waker| {
            let (worker, helper) = CryptoWorker::helped_by(waker.clone());
            let helper = has_local.then_some(helper);
            helpers.extend(has_local.then_some(worker));
            let serve = |(index, device)| WorkerSocket { index, socket: serve(device, &waker) };
            let sockets = devices.into_iter().map(serve).collect();
            PathWorker::new::<LiveEnv<D>>(clock.clone(), owner.clone(), waker.clone(), sockets, helper)
        });
        paths.push(worker.map_err(not_started)?);
    }
    Ok(DriverParts { sockets: places, workers: Workers::of_paths(paths, helpers) })
}

/// Places for `split`: the driver sends, the receive worker receives.
fn place_split<D: Device>(
    settings: &DriverSettings,
    clock: &Clock,
    owner: &Waker,
    devices: Vec<D>,
    spawner: &mut Spawner,
) -> Result<DriverParts<D>, StartError> {
    let (mut places, mut receiving) = (Vec::with_capacity(devices.len()), Vec::with_capacity(devices.len()));
    for device in devices {
        let [sender, receiver] = halves(device)?;
        places.push(Place::Local(serve_sending(sender, owner)));
        receiving.push(receiver);
    }
    let of_worker = WorkerSettings {
        name: "litz-receive".to_owned(),
        join_within: receive_worker::LIVENESS_INTERVAL,
        if_it_panics: "the connections of its receive halves end",
        ..worker_settings(settings, clock, owner, 1)
    };
    let receiver = spawner.spawn_polling(of_worker, |waker| {
        let serve = |(index, device)| WorkerSocket { index, socket: serve(device, &waker) };
        let sockets = receiving.into_iter().enumerate().map(serve).collect();
        ReceiveWorker::new::<LiveEnv<D>>(clock.clone(), owner.clone(), waker.clone(), sockets)
    });
    let receiver = receiver.map_err(not_started)?;
    Ok(DriverParts { sockets: places, workers: Workers::of_receiver(receiver) })
}

/// Places for `pipeline`: the driver has the send halves, one worker sends; another one receives
/// for the receive worker.
fn place_pipeline<D: Device>(
    settings: &DriverSettings,
    clock: &Clock,
    owner: &Waker,
    devices: Vec<D>,
    verify: Option<Verify<D::Protocol>>,
    spawner: &mut Spawner,
) -> Result<DriverParts<D>, StartError> {
    let [device] = <[D; 1]>::try_from(devices).map_err(|devices| {
        StartError::Configuration(format!("pipeline has one device, not {}: use split", devices.len()))
    })?;
    let places = vec![Place::Offloaded { worker: 0, batch_max: device.batch_max() }];
    let [sender, receiver] = halves(device)?;
    let of_worker = |number, name: &str, if_it_panics| WorkerSettings {
        name: name.to_owned(),
        if_it_panics,
        ..worker_settings(settings, clock, owner, number)
    };
    let of_sender = WorkerSettings {
        join_within: path_worker::HANG_AFTER,
        ..of_worker(1, "litz-send", "the connections of its device end")
    };
    let sender = spawner.spawn_polling(of_sender, |waker| {
        let sockets = vec![WorkerSocket { index: 0, socket: serve_sending(sender, &waker) }];
        PathWorker::new::<LiveEnv<D>>(clock.clone(), owner.clone(), waker.clone(), sockets, None)
    });
    let sender = sender.map_err(not_started)?;
    let (idle, receive_waker) = PollIdle::new(clock, settings.busy_poll).map_err(not_started)?;
    let of_intake = WorkerSettings {
        join_within: receive_worker::LIVENESS_INTERVAL,
        owner: receive_waker.clone(),
        ..of_worker(3, "litz-intake", "the receive worker ends")
    };
    let intake = spawner.spawn_polling(of_intake, |waker| {
        let socket = WorkerSocket { index: 0, socket: serve(receiver, &waker) };
        Intake::new::<LiveEnv<D>>(clock.clone(), receive_waker.clone(), waker.clone(), socket, verify)
    });
    let intake = intake.map_err(not_started)?;
    let tally = Arc::clone(intake.tally());
    let of_receiver = WorkerSettings {
        join_within: receive_worker::LIVENESS_INTERVAL,
        ..of_worker(2, "litz-receive", "the connections of its receive halves end")
    };
    let sockets = vec![WorkerSocket { index: 0, socket: LocalSocket::new(intake) }];
    let (receiver, receive_loop) =
        ReceiveWorker::new::<IntakeEnv<D::Protocol, Clock>>(clock.clone(), owner.clone(), receive_waker, sockets);
    spawner.spawn(of_receiver, receive_loop, idle).map_err(not_started)?;
    Ok(DriverParts { sockets: places, workers: Workers::of_pipeline(sender, receiver, &tally) })
}

/// Places all devices on the driver.
fn all_local<D: Device>(devices: Vec<D>, owner: &Waker) -> Vec<Place<LiveEnv<D>>> {
    devices.into_iter().map(|device| Place::Local(serve(device, owner))).collect()
}

/// Splits a device for a processor that sends and one that receives.
fn halves<D: Device>(device: D) -> Result<[D; 2], StartError> {
    device.share().map_err(|error| StartError::System("share a socket", error))
}

/// Returns the error of a worker's thread that does not start.
const fn not_started(error: io::Error) -> StartError {
    StartError::System("start a worker", error)
}

/// Returns the settings of worker `number`, counted from one, that are the same for all kinds of
/// workers.
fn worker_settings(settings: &DriverSettings, clock: &Clock, owner: &Waker, number: usize) -> WorkerSettings {
    WorkerSettings {
        name: String::new(),
        core: settings.cores.get(number).copied(),
        clock: clock.clone(),
        busy_poll: settings.busy_poll,
        owner: owner.clone(),
        join_within: Duration::ZERO,
        if_it_panics: "",
    }
}
