/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing objects over drives; see replica.h. */
#include "manager/replica.h"

#include "base/check.h"
#include "base/size.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/*
 * Any 2^n neighbours of a layer are spread evenly by the reversed bits of their numbers (van der Corput), and layers are moved
 * against each other by an irrational step. The golden sequence over the object's number is not enough: where a layer has as
 * many experts as a Fibonacci number, every layer would begin at the same place of it, and of 8 neighbours it gives a
 * drive one too many of each layer.
 */
#define STEP_LAYER 0.7320508075688772 /* of the square root of 3 */
#define STEP_DRIVE 0.6180339887498949 /* between the chances of drives whose share is below a stripe */

/* Of one sequence of runs: the drives that serve it. */
struct team {
	enum replica_rank rank;
	uint32_t count, drive[LOADER_REPLICAS_MAX];
	double weight[LOADER_REPLICAS_MAX], weights;
};

static double fraction(double value)
{
	return value - floor(value);
}

static double reversed_bits(uint32_t value)
{
	double sum = 0, weight = 0.5;

	for (; value != 0; value >>= 1, weight /= 2)
		sum += (value & 1) != 0 ? weight : 0;
	return sum;
}

double replica_ticket(uint32_t layer, uint32_t expert)
{
	return fraction(layer * STEP_LAYER + reversed_bits(expert));
}

static enum replica_rank best_rank(const struct replica_options *options)
{
	enum replica_rank best = REPLICA_OUT;

	for (uint32_t i = 0; i < options->count; i++)
		if (options->option[i].rank < best)
			best = options->option[i].rank;
	return best;
}

/* Below REPLICA_GOOD one drive serves all: what is slow or broken is not made to take turns. */
static int choose_team(const struct replica_options *options, struct team *ret_team)
{
	enum replica_rank best = best_rank(options);
	struct team team = {.rank = best};

	if (best >= REPLICA_HANGS)
		return best == REPLICA_HANGS ? -EAGAIN : -EIO;
	for (uint32_t i = 0; i < options->count; i++) {
		const struct replica_option *option = &options->option[i];

		if (option->rank != best || (best != REPLICA_GOOD && team.count > 0))
			continue;
		team.drive[team.count] = option->drive;
		team.weight[team.count] = option->weight > 0 ? option->weight : 1;
		team.weights += team.weight[team.count++];
	}
	*ret_team = team;
	return 0;
}

static int is_same_team(const struct team *a, const struct team *b)
{
	if (a->count != b->count)
		return 0;
	for (uint32_t i = 0; i < a->count; i++)
		if (a->drive[i] != b->drive[i] || a->weight[i] != b->weight[i])
			return 0;
	return 1;
}

static uint32_t choose_one(const struct team *team, double ticket)
{
	double edge = 0;

	for (uint32_t i = 0; i + 1 < team->count; i++) {
		edge += team->weight[i] / team->weights;
		if (ticket < edge)
			return i;
	}
	return team->count - 1;
}

/* Of the best rank, as the team is. Every run of a sequence has such a file on each drive of its team. */
static uint32_t file_on(const struct replica_options *options, uint32_t drive)
{
	enum replica_rank best = best_rank(options);

	for (uint32_t i = 0; i < options->count; i++)
		if (options->option[i].rank == best && options->option[i].drive == drive)
			return options->option[i].file;
	CNRE_CHECK(0);
	return 0;
}

static struct replica_part *part_of(struct replica_split *split, uint32_t drive)
{
	struct replica_part *part;

	for (uint32_t i = 0; i < split->part_count; i++)
		if (split->part[i].drive == drive)
			return &split->part[i];
	CNRE_CHECK(split->part_count < REPLICA_PARTS_MAX);
	part = &split->part[split->part_count++];
	part->drive = drive;
	part->run_count = 0;
	part->bytes = 0;
	return part;
}

static void add_run(struct replica_part *part, const struct replica_run *run)
{
	CNRE_CHECK(part->run_count < LOADER_RUNS_MAX); /* an interval touches each run of the plan once */
	part->run[part->run_count++] = *run;
	part->bytes += run->bytes;
}

/* A sequence of runs of the plan with the same team, seen as one piece of `bytes`. */
struct sequence {
	const struct model_plan *plan;
	const struct replica_options *options;
	uint32_t first, count;
	uint64_t bytes;
};

/* The bytes from `from` to `to` of a sequence become one drive's. */
static void give(const struct sequence *sequence, uint32_t drive, uint64_t from, uint64_t to,
		 struct replica_split *split)
{
	struct replica_part *part = part_of(split, drive);
	uint64_t begin = 0;

	for (uint32_t i = sequence->first; i < sequence->first + sequence->count; i++) {
		const struct model_run *run = &sequence->plan->run[i];
		uint64_t low = from > begin ? from - begin : 0, high = to - begin < run->bytes ? to - begin : run->bytes;
		uint64_t needed = run->needed_bytes < high ? run->needed_bytes : high;

		if (to > begin && low < run->bytes && needed > low)
			add_run(part, &(struct replica_run){.run = i,
							    .file = file_on(&sequence->options[i], drive),
							    .off = low,
							    .bytes = high - low,
							    .needed_bytes = needed - low});
		begin += run->bytes;
	}
}

/*
 * How much each of the team reads. A drive whose share is less than a stripe gets a whole stripe now and then instead, as
 * often as makes up for it. The heaviest gets what is left.
 */
static void share_out(const struct team *team, uint64_t bytes, double ticket, uint64_t ret_bytes[LOADER_REPLICAS_MAX])
{
	uint64_t left = bytes;
	uint32_t heaviest = 0;

	for (uint32_t i = 1; i < team->count; i++)
		if (team->weight[i] > team->weight[heaviest])
			heaviest = i;
	for (uint32_t i = 0; i < team->count; i++) {
		double share = (double)bytes * team->weight[i] / team->weights;

		ret_bytes[i] = 0;
		if (i == heaviest)
			continue;
		if (share >= REPLICA_STRIPE_BYTES_MIN)
			ret_bytes[i] = cnre_size_align_down((uint64_t)share, MODEL_READ_ALIGNMENT);
		else if (fraction(ticket + i * STEP_DRIVE) < share / REPLICA_STRIPE_BYTES_MIN)
			ret_bytes[i] = REPLICA_STRIPE_BYTES_MIN;
		if (ret_bytes[i] + REPLICA_STRIPE_BYTES_MIN > left)
			ret_bytes[i] = 0;
		left -= ret_bytes[i];
	}
	ret_bytes[heaviest] = left;
}

static void split_sequence(const struct sequence *sequence, const struct team *team, double ticket,
			   struct replica_split *split)
{
	uint64_t bytes[LOADER_REPLICAS_MAX], at = 0;
	uint32_t first = (uint32_t)(ticket * team->count);

	if (team->count == 1 || sequence->bytes < REPLICA_WHOLE_BELOW_BYTES) {
		give(sequence, team->drive[choose_one(team, ticket)], 0, sequence->bytes, split);
		return;
	}
	share_out(team, sequence->bytes, ticket, bytes);
	for (uint32_t i = 0; i < team->count; i++) {
		uint32_t turn = (first + i) % team->count;

		if (bytes[turn] > 0)
			give(sequence, team->drive[turn], at, at + bytes[turn], split);
		at += bytes[turn];
	}
}

int replica_split(const struct model_plan *plan, const struct replica_options *options, double ticket,
		  struct replica_split *ret_split)
{
	struct sequence sequence = {.plan = plan, .options = options};
	struct team team[LOADER_RUNS_MAX];

	_Static_assert(MODEL_RUNS_MAX <= LOADER_RUNS_MAX, "a part has room for every run of a plan");
	CNRE_CHECK(plan->run_count > 0 && plan->run_count <= MODEL_RUNS_MAX);
	for (uint32_t i = 0; i < plan->run_count; i++) {
		int r = choose_team(&options[i], &team[i]);

		if (r < 0)
			return r;
	}
	ret_split->part_count = 0;
	ret_split->rank = REPLICA_GOOD;
	for (uint32_t i = 0; i < plan->run_count; i++) {
		if (team[i].rank > ret_split->rank)
			ret_split->rank = team[i].rank;
		sequence.bytes += plan->run[i].bytes;
		sequence.count++;
		if (i + 1 < plan->run_count && is_same_team(&team[i], &team[i + 1]))
			continue;
		split_sequence(&sequence, &team[i], ticket, ret_split);
		sequence.first = i + 1;
		sequence.count = 0;
		sequence.bytes = 0;
	}
	return 0;
}

/* ---- balance ---- */

static void add_loads(const struct replica_group *group, const double *weight, double *load)
{
	double weights = 0;

	for (uint32_t drive = 0; drive < LOADER_DRIVES_MAX; drive++)
		weights += (group->drives >> drive & 1) != 0 ? weight[drive] : 0;
	for (uint32_t drive = 0; drive < LOADER_DRIVES_MAX && weights > 0; drive++)
		load[drive] += (group->drives >> drive & 1) != 0 ? group->bytes * weight[drive] / weights : 0;
}

/* Who is loaded beyond its share becomes lighter; within bounds, since a mirror that holds little can never be busy enough. */
void replica_balance(const struct replica_group *group, uint32_t group_count, const double speed[LOADER_DRIVES_MAX],
		     double ret_weight[LOADER_DRIVES_MAX])
{
	double speeds = 0, bytes = 0;
	uint32_t drives = 0;

	memcpy(ret_weight, speed, LOADER_DRIVES_MAX * sizeof ret_weight[0]);
	for (uint32_t i = 0; i < group_count; i++) {
		drives |= group[i].drives;
		bytes += group[i].bytes;
	}
	for (uint32_t drive = 0; drive < LOADER_DRIVES_MAX; drive++)
		speeds += (drives >> drive & 1) != 0 ? speed[drive] : 0;
	for (uint32_t round = 0; round < REPLICA_BALANCE_ROUNDS; round++) {
		double load[LOADER_DRIVES_MAX] = {0};

		for (uint32_t i = 0; i < group_count; i++)
			add_loads(&group[i], ret_weight, load);
		for (uint32_t drive = 0; drive < LOADER_DRIVES_MAX; drive++) {
			double lean = load[drive] > 0 ? sqrt(bytes * speed[drive] / speeds / load[drive]) : 1;
			double next = ret_weight[drive] * lean;

			next = fmin(next, speed[drive] * REPLICA_LEAN_MAX);
			ret_weight[drive] = fmax(next, speed[drive] / REPLICA_LEAN_MAX);
		}
	}
}
