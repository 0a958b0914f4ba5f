/* SPDX-License-Identifier: Apache-2.0 */
/* The manager's own account of itself as JSON; see report.h. Numbers come from where they are kept, never from copies. */
#include "manager/report.h"

#include "base/check.h"
#include "base/clock.h"
#include "manager/bell.h"
#include "manager/colibri_env.h"
#include "manager/feed.h"
#include "manager/fence.h"
#include "manager/histogram.h"
#include "manager/kv.h"
#include "manager/listener.h"
#include "manager/loader.h"
#include "manager/metrics.h"
#include "manager/mirror.h"
#include "manager/pool.h"
#include "manager/pressure.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/settings.h"
#include "manager/stall.h"
#include "manager/store.h"
#include "manager/vram.h"
#include "model/view.h"
#include "shm/numa.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* A path, or what was made from one, is bytes; JSON is UTF-8. What is none is shown with '?' for everything but ASCII. */
static json_t *text(const char *bytes)
{
	json_t *string = json_string(bytes);
	char shown[512];
	size_t i;

	if (string != NULL)
		return string;
	for (i = 0; i + 1 < sizeof shown && bytes[i] != '\0'; i++)
		shown[i] = (unsigned char)bytes[i] < 0x80 ? bytes[i] : '?';
	shown[i] = '\0';
	return json_string(shown);
}

static json_t *hex(const unsigned char *digest)
{
	char text[2 * CNRE_DIGEST_BYTES + 1];

	return json_string(cnre_fingerprint_hex(digest, CNRE_DIGEST_BYTES, text));
}

static json_t *report_places(const struct cnre_places *places)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < places->place_count; i++) {
		const struct cnre_place *place = &places->place[i];

		(void)json_array_append_new(list, json_pack("{s:o, s:I, s:I}", "directory", text(place->path), "shards",
							    (json_int_t)place->shard_count, "shards_not_used",
							    (json_int_t)place->hidden_count));
	}
	return list;
}

/* Null, or of which layout its experts are. */
static json_t *report_view(const struct model_catalog *catalog)
{
	if (catalog->view == NULL)
		return json_null();
	return json_pack("{s:s, s:I, s:o}", "name", catalog->view->name, "version", (json_int_t)catalog->view->version,
			 "checkpoint", text(catalog->source->name));
}

static json_t *report_model(struct manager *manager, const struct served_model *model)
{
	const struct model_catalog *catalog = model->catalog;

	return json_pack(
		"{s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name", text(catalog->name),
		"view", report_view(catalog),
		"directory", text(catalog->directory), "family", catalog->family, "identity",
		hex(catalog->fingerprint.identity), "layers", (json_int_t)catalog->layer_count, "experts",
		(json_int_t)catalog->expert_count, "top_k", (json_int_t)catalog->top_k, "objects",
		(json_int_t)catalog->object_count, "resident_objects", (json_int_t)residency_objects(manager, model),
		"resident_bytes", (json_int_t)residency_bytes(manager, model),
		"payload_bytes_total", (json_int_t)catalog->payload_bytes_total, "slab_bytes_max",
		(json_int_t)catalog->slab_bytes_max, "payload_bytes_max", (json_int_t)catalog->payload_bytes_max,
		"directories", report_places(catalog->places));
}

static json_t *report_models(struct manager *manager)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < manager->model_count; i++)
		(void)json_array_append_new(list, report_model(manager, &manager->model[i]));
	return list;
}

static json_t *report_budget(const struct manager *manager)
{
	const struct budget *budget = &manager->budget;
	json_t *terms = json_array();

	for (uint32_t i = 0; i < budget->term_count; i++)
		(void)json_array_append_new(
			terms, json_pack("{s:I, s:o, s:s}", "bytes", (json_int_t)budget->term[i].bytes, "source",
					 text(budget->term[i].source), "do", budget->term[i].advice));
	return json_pack("{s:I, s:I, s:o, s:o}", "bytes",
			 (json_int_t)cnre_counter_get(&manager->counters->budget_bytes), "decided_bytes",
			 (json_int_t)budget->bytes, "binding", text(budget->term[budget->binding].source), "terms",
			 terms);
}

static json_t *report_numa(const struct manager *manager, int error)
{
	int numa_node = manager->settings->numa;
	char shown[24];

	if (error != 0)
		return json_string("refused");
	(void)snprintf(shown, sizeof shown, "node %d", numa_node);
	return json_string(numa_node == CNRE_NUMA_INTERLEAVE ? "interleave"
			   : numa_node == CNRE_NUMA_DEFAULT  ? "local"
							     : shown);
}

static json_t *report_pool(const struct manager *manager)
{
	struct pool_status status;
	json_t *backing = json_object();

	pool_get_status(manager->pool, &status);
	for (int i = CNRE_BACKING_1G; i <= CNRE_BACKING_4K; i++)
		(void)json_object_set_new(backing, cnre_backing_name((enum cnre_backing)i),
					  number(status.bytes_by_backing[i]));
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "budget_bytes",
			 (json_int_t)status.budget_bytes, "backed_bytes", (json_int_t)status.backed_bytes, "used_bytes",
			 (json_int_t)status.used_bytes, "windows", (json_int_t)status.windows, "guaranteed",
			 (json_int_t)status.guaranteed, "reserved_slabs", (json_int_t)manager->sessions->reserved_slabs,
			 "loads_max", (json_int_t)manager->loads_max, "window_bytes", (json_int_t)manager->window_bytes,
			 "quarantined", (json_int_t)fence_quarantined(manager), "backing", backing, "numa",
			 report_numa(manager, status.numa_error));
}

static json_t *report_loader(const struct manager *manager)
{
	struct loader_status status;

	loader_get_status(manager->loader, &status);
	return json_pack("{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "engine",
			 status.uring ? "io_uring" : "pread", "reason", status.reason, "registered_buffers",
			 status.registered_buffers, "registered_files", status.registered_files, "files_direct",
			 (json_int_t)status.files_direct, "files_buffered", (json_int_t)status.files_buffered,
			 "in_flight", (json_int_t)loader_in_flight(manager->loader), "timed_out",
			 (json_int_t)residency_stalls(manager)->reads, "queued", (json_int_t)residency_queued(manager),
			 "chunk_bytes", (json_int_t)status.chunk_bytes, "chunk_depth", (json_int_t)status.chunk_depth,
			 "reads_in_flight_max", (json_int_t)status.reads_in_flight_max);
}

/* Variables of Colibri's engines that are set, used or not. */
static json_t *report_colibri(const struct manager *manager)
{
	json_t *list = json_array();
	struct colibri_env_line line;

	for (uint32_t i = 0; colibri_env_describe(manager->settings, i, &line); i++)
		(void)json_array_append_new(
			list, json_pack("{s:s, s:b, s:s}", "name", line.name, "used", line.is_used, "what", line.what));
	return list;
}

static void add_degraded(json_t *list, const char *what, const char *advice)
{
	(void)json_array_append_new(list, json_pack("{s:o, s:s}", "what", text(what), "do", advice));
}

/* A path may be longer than a line, and no UTF-8. */
static void add_stalls(json_t *list, const struct stalls *stalls)
{
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		const struct stall *stall = &stalls->drive[i];
		char what[512];

		if (stall->reads == 0)
			continue;
		(void)snprintf(what, sizeof what, "the drive of %.300s has not answered for %.1f s: %u reads timed out",
			       stall->path, (double)(cnre_clock_now_ns() - stall->since_ns) / 1e9, stall->reads);
		(void)json_array_append_new(
			list,
			json_pack(
				"{s:o, s:s}", "what", text(what), "do",
				"check the drive, its cable or its network; reads begin again by themselves when it answers"));
	}
}

static void add_pressure(json_t *list, const struct pressure *pressure)
{
	char what[160];

	if (pressure->steps == 0)
		return;
	(void)snprintf(what, sizeof what, "%s: experts are held within %u/%u of the budget",
		       pressure->after_oom ? "the kernel killed for memory in this control group"
					   : "processes wait for memory",
		       PRESSURE_PARTS - pressure->steps, PRESSURE_PARTS);
	add_degraded(
		list, what,
		"it comes back by itself when nobody waits for 60 s; if this returns, set a lower budget: cnrectl set ram SIZE");
}

static json_t *report_store(const struct manager *manager)
{
	static const char *const names[] = {
		[STORE_NONE] = "none", [STORE_SYSTEMD] = "systemd", [STORE_KEEPER] = "keeper"};
	struct store_status status;

	store_get_status(manager->store, &status);
	return json_pack("{s:s, s:I, s:I, s:I, s:b}", "kind", names[status.kind], "kept", (json_int_t)status.kept,
			 "most", (json_int_t)status.fds_max, "missing", (json_int_t)status.missing, "answers",
			 !status.is_slow);
}

static void add_store(json_t *list, const struct manager *manager)
{
	struct store_status status;
	char what[160];

	store_get_status(manager->store, &status);
	if (status.is_slow)
		add_degraded(list, "whoever keeps this manager's descriptors does not answer: new clients are refused",
			     "see whether the process cnre-keeper is stopped: kill -CONT; attached clients are served");
	if (status.is_lost)
		add_degraded(list, "the keeper ended: this manager's death would end its clients' sessions",
			     "restart the manager when its clients can bear it");
	if (status.missing == 0)
		return;
	(void)snprintf(what, sizeof what,
		       "%u descriptors are not kept: this manager's death would end its clients' sessions",
		       status.missing);
	add_degraded(list, what, "raise LimitNOFILE (ulimit -Hn) and FileDescriptorStoreMax, then restart the manager");
}

/* Not watching is no fault, so it is not among what is degraded. */
static json_t *report_pressure(const struct manager *manager)
{
	struct pressure_watched watched = pressure_watched();

	return json_pack("{s:o, s:s, s:s, s:I}", "watch", watched.path[0] == '\0' ? json_null() : text(watched.path),
			 "reason", watched.reason, "do", watched.advice, "steps", (json_int_t)manager->pressure.steps);
}

/* What works, but not as well as it could, and what to do about it. */
static json_t *report_degraded(const struct manager *manager)
{
	struct loader_status loader;
	struct pool_status pool;
	json_t *list = json_array();

	loader_get_status(manager->loader, &loader);
	pool_get_status(manager->pool, &pool);
	add_stalls(list, residency_stalls(manager));
	report_drives_degraded(manager, add_degraded, list);
	if (!loader.uring)
		add_degraded(list, "reads go through a pread pool, not io_uring", loader.reason);
	else if (!loader.registered_buffers)
		add_degraded(list, "reads use unregistered buffers",
			     "raise LimitMEMLOCK, or give the manager CAP_IPC_LOCK");
	if (loader.files_buffered > 0)
		add_degraded(list, "some checkpoint files are read through the page cache",
			     manager->settings->direct == SETTINGS_DIRECT_NO
				     ? "leave out --direct no"
				     : "put them on a file system with O_DIRECT, such as ext4 or xfs");
	if (pool.bytes_by_backing[CNRE_BACKING_4K] > 0 && pool.bytes_by_backing[CNRE_BACKING_4K] == pool.backed_bytes)
		add_degraded(list, "the pool lies on 4 KiB pages", "reserve huge pages: sysctl vm.nr_hugepages");
	if (pool.numa_error != 0)
		add_degraded(list, "the pool does not lie on NUMA nodes as --numa says: mbind is refused",
			     "allow the system calls mbind and get_mempolicy, or set --numa local");
	/* Less than a slab is always left over. */
	if (pool.backed_bytes + manager->window_bytes <= pool.budget_bytes &&
	    pool.backed_bytes < manager->slab_bytes_total)
		add_degraded(list, "the pool is smaller than the budget: memory ran out",
			     "free memory and set the budget again: cnrectl set ram SIZE");
	if (manager->measure.overshooting)
		add_degraded(
			list,
			"the kernel counts more memory for the pool than its budget: experts are held within less",
			"compare measured_bytes, pool_bytes and budget_bytes of cnrectl stats; set a lower budget: cnrectl set ram SIZE");
	add_pressure(list, &manager->pressure);
	add_store(list, manager);
	if (metrics_fault(manager) != NULL)
		add_degraded(list, metrics_fault(manager), "clients are served; restart the manager when that is put right");
	mirror_report_degraded(manager, add_degraded, list);
	kv_report_degraded(manager, add_degraded, list);
	vram_report_degraded(manager, add_degraded, list);
	return list;
}

json_t *report_status(struct manager *manager)
{
	return json_pack("{s:i, s:f, s:I, s:o, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid",
			 (int)getpid(), "uptime_s", (double)(cnre_clock_now_ns() - manager->started_ns) / 1e9, "epoch",
			 (json_int_t)manager->state->epoch, "socket", text(listener_path(manager)), "version",
			 CNRE_VERSION, "policy", residency_policy_name(manager), "bell", bell_way(manager->bell),
			 "clients", (json_int_t)manager->sessions->active_count, "models", report_models(manager),
			 "budget", report_budget(manager), "pool", report_pool(manager), "loader",
			 report_loader(manager), "settings", report_settings(manager), "degraded",
			 report_degraded(manager), "pressure", report_pressure(manager), "store",
			 report_store(manager), "kv", kv_report_short(manager), "vram", vram_report(manager), "mirrors", mirror_report(manager),
			 "warm", report_warm(manager), "colibri", report_colibri(manager));
}

/* Counters of accesses are derived, so nobody keeps them: they are what was counted last. */
static void refresh_accesses(struct cnre_counters *counters, const struct session_totals *sum, uint64_t leased)
{
	cnre_counter_set(&counters->accesses, sum->accesses);
	cnre_counter_set(&counters->hits, sum->accesses - sum->misses);
	cnre_counter_set(&counters->misses, sum->misses);
	cnre_counter_set(&counters->joins, sum->joins);
	cnre_counter_set(&counters->failures, sum->failures);
	cnre_counter_set(&counters->felt_wait_ns, sum->wait_ns);
	cnre_counter_set(&counters->bytes_looked_up, sum->bytes);
	cnre_counter_set(&counters->vram_hits, sum->vram_hits);
	cnre_counter_set(&counters->leased_objects, leased);
}

json_t *report_stats(struct manager *manager, const struct session_totals *sum, uint64_t leased)
{
	json_t *stats = json_object();

	refresh_accesses(manager->counters, sum, leased);
	for (size_t i = 0; i < cnre_counter_count; i++) {
		const _Atomic uint64_t *word =
			(const void *)((const char *)manager->counters + cnre_counter_table[i].offset);

		(void)json_object_set_new(stats, cnre_counter_table[i].name, number(cnre_counter_get(word)));
	}
	(void)json_object_set_new(stats, "felt_wait_s",
				  json_real((double)cnre_counter_get(&manager->counters->felt_wait_ns) / 1e9));
	(void)json_object_set_new(stats, "service_s",
				  json_real((double)cnre_counter_get(&manager->counters->service_ns) / 1e9));
	(void)json_object_set_new(stats, "uptime_s",
				  json_real((double)(cnre_clock_now_ns() - manager->started_ns) / 1e9));
	return stats;
}

void report_quantiles(json_t *to, const char *name, const struct histogram *histogram)
{
	static const struct {
		const char *end;
		double part;
	} quantiles[] = {{"p50_s", 0.5}, {"p99_s", 0.99}};
	char key[64];

	for (size_t i = 0; i < CNRE_COUNT_OF(quantiles); i++) {
		int is_known = histogram != NULL && histogram->count > 0;

		(void)snprintf(key, sizeof key, "%s_%s", name, quantiles[i].end);
		(void)json_object_set_new(to, key, is_known ? json_real((double)histogram_quantile_ns(histogram, quantiles[i].part) / 1e9) : json_null());
	}
}

static double seconds_since(int64_t then_ns)
{
	return (double)(cnre_clock_now_ns() - then_ns) / 1e9;
}

json_t *report_client(const struct session *session, const struct session_count *count)
{
	const struct session_totals *totals = &count->totals;

	json_t *json = json_pack(
		"{s:I, s:s, s:i, s:I, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:I, s:I}", "session",
		(json_int_t)session->number, "name", session->name, "pid", (int)session->peer.pid, "uid",
		(json_int_t)session->peer.uid, "model", text(session->model->catalog->name), "state",
		session->socket.fd >= 0 ? "attached" : "disconnected", "reserve_slabs", (json_int_t)session->reserve_slabs,
		"leased", (json_int_t)count->leased, "accesses", (json_int_t)totals->accesses, "hits",
		(json_int_t)(totals->accesses - totals->misses), "misses", (json_int_t)totals->misses, "joins",
		(json_int_t)totals->joins, "failures", (json_int_t)totals->failures, "bytes_looked_up",
		(json_int_t)totals->bytes, "log_lost", (json_int_t)session->log_reader.lost_count, "felt_wait_s",
		(double)totals->wait_ns / 1e9, "attached_s", seconds_since(session->attached_ns), "heard_s",
		session->heard_ns == 0 ? json_null() : json_real(seconds_since(session->heard_ns)), "vram_hits",
		(json_int_t)totals->vram_hits, "vram_leased", (json_int_t)count->vram_leased);

	report_quantiles(json, "felt", feed_client_wait(session->feed));
	return json;
}

json_t *report_text(const char *bytes)
{
	return text(bytes);
}
