/* SPDX-License-Identifier: Apache-2.0 */
/* The tier of VRAM: opening, the turn, closing; see vram.h. */
#include "manager/vram_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/size.h"
#include "manager/feed.h"
#include "manager/listener.h"
#include "manager/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t vram_claim_bytes(const struct settings *settings)
{
	return settings->vram == NULL ? 0 : settings->vram_staging_bytes;
}

/* ---- opening ---- */

static void fired(struct loop_source *source, uint32_t events)
{
	struct vram *vram = (struct vram *)((char *)source - offsetof(struct vram, events));

	(void)events;
	vram->is_fired = 1; /* the turn reaps */
}

/* What a client is trusted by: the group of the path that it connected to. */
static gid_t socket_group(const struct manager *manager)
{
	struct stat status;

	return manager->listener != NULL && lstat(listener_path(manager), &status) == 0 ? status.st_gid : getegid();
}

/* auto: what is free now but the reserve. A size is what was asked for, and what of it is not to be had is told of later. */
static uint64_t budget_of(const struct vram *vram, uint32_t number, const struct vram_request *request)
{
	const struct manager *manager = vram->manager;
	struct gpu_device_status status;

	if (manager->adopted && manager->state->vram_budget_plus_one > 0)
		return manager->state->vram_budget_plus_one - 1; /* `set vram` outlives who was told */
	if (!request->is_auto)
		return request->budget_bytes;
	gpu_get_status(vram->gpu, number, &status);
	return status.free_bytes > vram->reserve_bytes ? status.free_bytes - vram->reserve_bytes : 0;
}

static int create_tier(struct vram *vram)
{
	struct manager *manager = vram->manager;
	uint32_t *layer_of = calloc(manager->owner_count, sizeof *layer_of);
	uint64_t *bytes_of = calloc(manager->owner_count, sizeof *bytes_of);
	struct tier_setup setup = {
		.object_count = manager->owner_count,
		.layer_of = layer_of,
		.charged_bytes_of = bytes_of,
		.prior_of = feed_uses(manager),
		.device_count = vram->device_count,
		.can_upload = vram_can_upload,
		.can_leave = vram_can_leave,
		.context = vram,
	};
	int r = -ENOMEM;

	for (uint32_t i = 0; i < manager->model_count && layer_of != NULL && bytes_of != NULL; i++) {
		const struct served_model *model = &manager->model[i];

		setup.layer_count = model->first_layer + model->catalog->layer_count;
		if (setup.top_k < model->catalog->top_k)
			setup.top_k = model->catalog->top_k;
		for (uint32_t object = 0; object < model->catalog->object_count; object++) {
			layer_of[model->first_owner + object] = model->first_layer + model->catalog->object[object].layer;
			bytes_of[model->first_owner + object] = vram_place_bytes(manager, model->first_owner + object);
		}
	}
	if (layer_of != NULL && bytes_of != NULL)
		r = tier_create(&vram->tier, &setup);
	free(layer_of);
	free(bytes_of);
	return r;
}

static int open_gpu(struct vram *vram, const struct vram_request *request, char message[VRAM_MESSAGE_BYTES])
{
	struct gpu_setup setup = {
		.staging_bytes = vram->staging_bytes,
		.uuids = request->uuid_count > 0 ? request->uuid : NULL,
		.uuid_count = request->uuid_count,
	};
	char why[GPU_MESSAGE_BYTES] = "";
	int r = gpu_open(&vram->gpu, &setup, why);

	if (r < 0)
		return cnre_message(message, VRAM_MESSAGE_BYTES, r, "--vram: %.200s%s", why,
				    vram->manager->adopted ? "" : vram_settings_hint(request, r));
	vram->device_count = gpu_count(vram->gpu);
	vram->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (vram->pidfd < 0)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -errno,
				    "--vram: no pidfd, by which clients would see this manager end: %s", strerror(errno));
	vram->device = calloc(vram->device_count, sizeof *vram->device);
	vram->wanted = calloc(vram->manager->model_count, 1);
	vram->missed = calloc(vram->manager->owner_count, 1);
	for (uint32_t i = 0; i < vram->device_count && vram->device != NULL; i++)
		vram_device_open(vram, i, budget_of(vram, i, request));
	r = vram->device == NULL || vram->wanted == NULL || vram->missed == NULL ? -ENOMEM : create_tier(vram);
	if (r < 0)
		return cnre_message(message, VRAM_MESSAGE_BYTES, r, "--vram: cannot make its tables: %s", strerror(-r));
	vram->events = (struct loop_source){.fd = gpu_event_fd(vram->gpu), .ready = fired};
	r = loop_add(vram->manager->loop, &vram->events, EPOLLIN);
	return r < 0 ? cnre_message(message, VRAM_MESSAGE_BYTES, r, "--vram: cannot watch the driver: %s", strerror(-r)) : 0;
}

/* 0, or -ETIMEDOUT: a device does not answer, so the process must end by _exit. */
static int close_gpu(struct vram *vram)
{
	int r = vram->gpu == NULL ? 0 : gpu_stop(vram->gpu, GPU_STOP_NS);

	if (vram->events.fd >= 0)
		loop_remove(vram->manager->loop, &vram->events);
	vram->events.fd = -1;
	vram->gpu = gpu_close(vram->gpu);
	vram->tier = tier_destroy(vram->tier);
	vram_sessions_close(vram);
	for (uint32_t i = 0; i < vram->device_count && vram->device != NULL; i++) {
		vram_arenas_close(&vram->device[i]);
		vram_tables_close(&vram->device[i]);
	}
	free(vram->device);
	vram->device = NULL;
	vram->device_count = 0;
	if (vram->pidfd >= 0)
		(void)close(vram->pidfd);
	vram->pidfd = -1;
	return r;
}

static void announce(const struct vram *vram)
{
	for (uint32_t i = 0; i < vram->device_count; i++) {
		struct gpu_device_status status;
		uint64_t budget_bytes = vram->device[i].budget_bytes, window_bytes = vram->manager->window_bytes;
		char budget[16], free_now[16];

		gpu_get_status(vram->gpu, i, &status);
		cnre_log(CNRE_LOG_NOTICE, "vram: device %u is %s (%s): up to %s for experts; %s are free now", i, status.uuid_text, status.name,
			 cnre_size_format(budget_bytes, budget, sizeof budget),
			 cnre_size_format(status.free_bytes, free_now, sizeof free_now));
		if (budget_bytes > 0 && budget_bytes < window_bytes)
			cnre_log(CNRE_LOG_WARNING, "vram: device %u will hold nothing: its budget is smaller than one expert, which takes %llu bytes",
				 i, (unsigned long long)window_bytes);
		else if (budget_bytes > 0 && (status.free_bytes < vram->reserve_bytes || budget_bytes > status.free_bytes - vram->reserve_bytes))
			cnre_log(CNRE_LOG_WARNING, "vram: device %u has less free than that and the reserve: it will be filled as far as it goes", i);
	}
}

/* 1: without it the manager starts all the same, and says so. */
static int may_go_without(const struct vram *vram, const struct vram_request *request, int error)
{
	return vram->manager->adopted || (request->is_auto && request->uuid_count == 0 && error == -ENODEV);
}

int vram_open(struct manager *manager, char message[VRAM_MESSAGE_BYTES])
{
	const struct settings *settings = manager->settings;
	struct vram_request request;
	struct vram *vram;
	int r;

	/* [VM1] relaxed: nobody serves yet; a former incarnation's devices are gone. */
	atomic_store_explicit(&manager->page->vram_devices, 0, memory_order_relaxed);
	cnre_counter_set(&manager->counters->vram_bytes, 0);
	cnre_counter_set(&manager->counters->vram_budget_bytes, 0);
	if (settings != NULL && vram_settings_unused(settings) != NULL)
		cnre_log(CNRE_LOG_WARNING, "%s", vram_settings_unused(settings));
	if (settings == NULL || settings->vram == NULL)
		return 0;
	r = vram_settings_parse(settings, &request, message);
	if (r < 0)
		return r;
	vram = calloc(1, sizeof *vram);
	if (vram == NULL)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -ENOMEM, "--vram: out of memory");
	manager->vram = vram;
	vram->manager = manager;
	vram->pidfd = vram->events.fd = -1;
	vram->limit.burst = 20;
	vram->trust = settings->vram_trust;
	vram->group = socket_group(manager);
	vram->reserve_bytes = settings->vram_reserve_bytes;
	vram->staging_bytes = settings->vram_staging_bytes;
	for (uint32_t i = 0; i < VRAM_UPLOADS_MAX; i++)
		vram->upload[i].vram = vram;
	r = open_gpu(vram, &request, message);
	if (r == 0) {
		vram_count(vram);
		announce(vram);
		vram->is_fired = 1; /* one may be lost already */
		return 0;
	}
	if (!may_go_without(vram, &request, r))
		return r; /* serve_close closes what there is */
	(void)close_gpu(vram);
	(void)snprintf(vram->fault, sizeof vram->fault, "%s", message);
	vram->is_fault = !request.is_auto;
	cnre_log(request.is_auto ? CNRE_LOG_NOTICE : CNRE_LOG_ERROR, "%s: experts are served from RAM only", message);
	return 0;
}

int vram_close(struct manager *manager)
{
	struct vram *vram = manager->vram;
	int r;

	if (vram == NULL)
		return 0;
	r = close_gpu(vram);
	free(vram->wanted);
	free(vram->missed);
	free(vram);
	manager->vram = NULL;
	return r;
}

/* ---- the turn ---- */

static void look_for_lost(struct vram *vram)
{
	for (uint32_t i = 0; i < vram->device_count; i++) {
		struct gpu_device_status status;

		if (vram->device[i].is_lost)
			continue;
		gpu_get_status(vram->gpu, i, &status);
		if (status.state == GPU_LOST)
			vram_device_lost(&vram->device[i]);
	}
}

static int is_abandoned(const struct vram_device *device, int64_t now_ns)
{
	return device->session_count == 0 && device->target_bytes > 0 && now_ns - device->abandoned_ns >= VRAM_ABANDON_NS;
}

/* 1: there is more to do at once. */
static int look_after(struct vram_device *device, int64_t now_ns)
{
	if (device->is_lost)
		return vram_device_sweep(device);
	if (is_abandoned(device, now_ns) || (device->relearn_ns != 0 && now_ns >= device->relearn_ns))
		vram_device_apply(device);
	vram_device_probe(device, now_ns);
	return 0;
}

/* What waits for leases and clients: nothing rings a bell when they let go. */
static void retry(struct vram *vram, int64_t now_ns)
{
	int waits = 0, is_blocked = 0;

	if (now_ns < vram->retry_ns)
		return;
	vram->retry_ns = now_ns + VRAM_RETRY_NS;
	vram_evict_suspects(vram);
	for (uint32_t i = 0; i < vram->device_count && vram->closings; i++)
		if (!vram->device[i].is_lost)
			waits |= vram_arena_trim(&vram->device[i]);
	vram->closings = waits;
	for (uint32_t i = 0; i < vram->device_count; i++) {
		is_blocked |= vram->device[i].is_blocked;
		vram->device[i].is_blocked = 0;
	}
	if (!is_blocked || now_ns < vram->enforce_ns)
		return;
	vram->enforce_ns = now_ns + VRAM_ENFORCE_NS;
	vram_sessions_enforce(vram);
}

int vram_turn(struct manager *manager)
{
	struct vram *vram = manager->vram;
	int64_t now_ns;
	int busy = 0;

	if (vram == NULL || vram->tier == NULL)
		return 0;
	now_ns = cnre_clock_now_ns();
	busy = gpu_reap(vram->gpu) > 0;
	if (busy || vram->is_fired)
		look_for_lost(vram);
	vram->is_fired = 0;
	if (vram_sessions_look(vram))
		vram->retry_ns = 0;
	for (uint32_t i = 0; i < vram->device_count; i++)
		busy |= look_after(&vram->device[i], now_ns);
	retry(vram, now_ns);
	return vram_place_turn(vram) | busy;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t deadline_of(const struct vram_device *device)
{
	int64_t deadline_ns = CNRE_NEVER;

	if (device->is_lost)
		return deadline_ns;
	if (device->relearn_ns != 0)
		deadline_ns = device->relearn_ns;
	if (device->session_count > 0)
		deadline_ns = earlier(deadline_ns, device->is_probing ? cnre_clock_now_ns() + VRAM_WATCH_NS : device->probe_ns);
	else if (device->target_bytes > 0)
		deadline_ns = earlier(deadline_ns, device->abandoned_ns + VRAM_ABANDON_NS);
	return deadline_ns;
}

/* While the driver is in a call, the watch over it wants to look (gpu_reap). */
static int is_waiting_for_driver(const struct vram *vram)
{
	if (vram->uploads_active > 0)
		return 1;
	for (uint32_t i = 0; i < vram->device_count; i++)
		if (vram->device[i].growth != VRAM_GROWS_NOT || vram->device[i].trimming)
			return 1;
	return 0;
}

int64_t vram_deadline_ns(const struct manager *manager)
{
	const struct vram *vram = manager->vram;
	int64_t deadline_ns = CNRE_NEVER;

	if (vram == NULL || vram->tier == NULL)
		return deadline_ns;
	for (uint32_t i = 0; i < vram->device_count; i++)
		deadline_ns = earlier(deadline_ns, deadline_of(&vram->device[i]));
	if (vram->leaving != NULL)
		deadline_ns = earlier(deadline_ns, vram->look_ns);
	if (vram->closings || vram->suspect_count > 0)
		deadline_ns = earlier(deadline_ns, vram->retry_ns);
	if (vram->heard && vram->uploads_active == 0)
		deadline_ns = earlier(deadline_ns, cnre_clock_now_ns() + VRAM_RETRY_NS); /* places of loads are all in use */
	return is_waiting_for_driver(vram) ? earlier(deadline_ns, cnre_clock_now_ns() + VRAM_WATCH_NS) : deadline_ns;
}
