/* SPDX-License-Identifier: Apache-2.0 */
/* --check; see check.h. */
#include "manager/check.h"

#include "base/log.h"
#include "base/size.h"
#include "manager/colibri_env.h"
#include "manager/kv.h"
#include "manager/mirror.h"
#include "manager/reservation.h"
#include "manager/settings.h"
#include "manager/vram.h"
#include "model/view.h"
#include "shm/numa.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int check_budget(struct manager *manager, char *message, size_t message_bytes)
{
	/* One client, and one read in flight beside. */
	uint64_t least = (reservation_least(manager) + 1) * manager->window_bytes;
	const struct budget_term *binding = &manager->budget.term[manager->budget.binding];
	char has[16], needs[16];

	if (manager->budget.bytes >= least || manager->budget.bytes >= manager->slab_bytes_total)
		return 0;
	(void)snprintf(message, message_bytes, "a budget of %s (%.200s) is too small: one client needs %s; %.100s",
		       cnre_size_format(manager->budget.bytes, has, sizeof has), binding->source,
		       cnre_size_format(least, needs, sizeof needs),
		       binding->advice[0] != '\0' ? binding->advice : "raise --ram");
	return -ENOSPC;
}

int check_numa(int numa_node, char *message, size_t message_bytes)
{
	struct cnre_numa_nodes nodes;

	/* What cannot be asked is left to the kernel, when memory is made. */
	if (numa_node < 0 || cnre_numa_get_nodes(&nodes) < 0 || cnre_numa_has(&nodes, (uint32_t)numa_node))
		return 0;
	(void)snprintf(
		message, message_bytes,
		"--numa %d: no such node, or none whose memory the manager may use; see /sys/devices/system/node",
		numa_node);
	return -EINVAL;
}

static void print_numa(int numa_node)
{
	struct cnre_numa_nodes nodes;
	int count = cnre_numa_get_nodes(&nodes);

	if (numa_node >= 0)
		(void)printf("numa     on node %d\n", numa_node);
	else if (numa_node == CNRE_NUMA_DEFAULT)
		(void)printf("numa     where the manager runs, or as it was started\n");
	else if (count > 0)
		(void)printf("numa     in turn on %d node%s\n", count, count == 1 ? "" : "s");
	else
		(void)printf("numa     not placed: %s\n", strerror(-count));
}

static void print_models(const struct manager *manager)
{
	char total[16], largest[16];

	for (uint32_t i = 0; i < manager->model_count; i++) {
		const struct model_catalog *catalog = manager->model[i].catalog;
		const struct cnre_place *place = catalog->places->place;

		(void)printf("model    %s%s%s: %s, %u layers, %u experts of at most %s, %s in all\n",
			     catalog->directory, catalog->view != NULL ? " as " : "",
			     catalog->view != NULL ? catalog->view->name : "", catalog->family, catalog->layer_count,
			     catalog->object_count,
			     cnre_size_format(catalog->payload_bytes_max, largest, sizeof largest),
			     cnre_size_format(catalog->payload_bytes_total, total, sizeof total));
		for (uint32_t d = 0; d < catalog->places->place_count && catalog->places->place_count > 1; d++)
			(void)printf("           %u shards from %s; %u others there are not used\n",
				     place[d].shard_count, place[d].path, place[d].hidden_count);
	}
}

static void print_budget(const struct budget *budget)
{
	char size[16];

	(void)printf("budget   %s\n", cnre_size_format(budget->bytes, size, sizeof size));
	for (uint32_t i = 0; i < budget->term_count; i++) {
		const struct budget_term *term = &budget->term[i];

		(void)printf("  %c %10s  %s%s%s\n", i == budget->binding ? '*' : ' ',
			     cnre_size_format(term->bytes, size, sizeof size), term->source,
			     i == budget->binding && term->advice[0] != '\0' ? ": " : "",
			     i == budget->binding ? term->advice : "");
	}
	if (budget->hugetlb_note != NULL && budget->hugetlb_note[0] != '\0')
		(void)printf("  %s\n", budget->hugetlb_note);
	for (uint32_t i = 0; i < BUDGET_HUGE_COUNT; i++)
		(void)printf("  free huge pages of %s: %s\n", i == BUDGET_HUGE_2M ? "2 MiB" : "1 GiB",
			     cnre_size_format(budget->huge_usable_bytes[i], size, sizeof size));
}

static void print_mirror(const struct mirror_status *status)
{
	char has[16], all[16];

	if (status->fault[0] != '\0') {
		(void)printf("mirror   %s: left out: %s\n", status->directory, status->fault);
		return;
	}
	(void)printf("mirror   %s: copies of %u of %u shards, with %s of %s of experts; %u refused, %u not there%s%s\n",
		     status->directory, status->proven, status->shards,
		     cnre_size_format(status->bytes, has, sizeof has),
		     cnre_size_format(status->bytes_of, all, sizeof all), status->refused, status->absent,
		     status->is_silent ? "; the rest does not answer" : "",
		     status->on_same_disk > 0 ? "; on the checkpoint's own disk: nothing is gained" : "");
	for (uint32_t i = 0; i < status->refusals; i++)
		(void)printf("           %s: %s\n", status->reason[i], status->advice[i]);
}

/* Compares them as a start would, but waits for it. */
static void print_mirrors(struct manager *manager)
{
	struct mirror_status status;
	int r = mirror_open(manager, &manager->settings->mirror);

	if (r < 0)
		cnre_log(CNRE_LOG_ERROR, "mirrors cannot be checked: %s", strerror(-r));
	mirror_wait(manager);
	for (uint32_t i = 0; i < mirror_count(manager); i++) {
		mirror_get_status(manager, i, &status);
		print_mirror(&status);
	}
	mirror_close(manager);
}

/* What would be done with prefixes, and what would stop the start. */
static int print_kv(const struct settings *settings)
{
	char ram[16], disk[16], message[KV_MESSAGE_BYTES];
	int r;

	if (kv_settings_unused(settings) != NULL)
		cnre_log(CNRE_LOG_WARNING, "%s", kv_settings_unused(settings));
	if (settings->kv_ram_bytes == 0) {
		(void)printf("kv       none: with --kv-ram SIZE prefixes of conversations are kept\n");
		return 0;
	}
	(void)printf("kv       %s of memory; %s%s%s%s\n", cnre_size_format(settings->kv_ram_bytes, ram, sizeof ram),
		     settings->kv_dir == NULL ? "no files: --kv-dir DIR keeps prefixes over a stop" : "files in ",
		     settings->kv_dir == NULL ? "" : settings->kv_dir,
		     settings->kv_dir != NULL && settings->kv_disk_bytes > 0 ? ", at most " : "",
		     settings->kv_dir != NULL && settings->kv_disk_bytes > 0
			     ? cnre_size_format(settings->kv_disk_bytes, disk, sizeof disk)
			     : "");
	r = kv_settings_check(settings, message);
	if (r < 0)
		cnre_log(CNRE_LOG_ERROR, "%s", message);
	return r;
}

static void print_vram(const char *line)
{
	(void)printf("vram     %s\n", line);
}

static void print_warm(const struct settings *settings)
{
	char bytes[16] = "";

	if (settings->warm == NULL)
		return;
	if (settings->warm_bytes > 0)
		(void)cnre_size_format(settings->warm_bytes, bytes, sizeof bytes);
	(void)printf("warm     %s%s%s\n", settings->warm, bytes[0] != '\0' ? ", at most " : "", bytes);
}

static void print_colibri(const struct settings *settings)
{
	struct colibri_env_line line;

	for (uint32_t i = 0; colibri_env_describe(settings, i, &line); i++)
		(void)printf("colibri  %s %s\n", line.name, line.what);
}

int check_print(struct manager *manager, const char *socket)
{
	struct settings_line line;
	char message[512];
	int r, kv, vram;

	(void)printf("socket   %s\n", socket);
	print_models(manager);
	print_mirrors(manager);
	print_budget(&manager->budget);
	print_numa(manager->settings->numa);
	kv = print_kv(manager->settings);
	vram = vram_check(manager->settings, print_vram);
	print_warm(manager->settings);
	print_colibri(manager->settings);
	(void)printf("settings\n");
	for (uint32_t i = 0; settings_describe(manager->settings, i, &line); i++)
		(void)printf("    %s = %s (%s)\n", line.name, line.value, line.source);
	r = check_budget(manager, message, sizeof message);
	if (r < 0)
		cnre_log(CNRE_LOG_ERROR, "%s", message);
	return r < 0 ? r : kv < 0 ? kv : vram;
}
