-- What the popular contents add to pairs that are listed, of the table `listed`.
WITH popular AS (
    SELECT fingerprint FROM samples CROSS JOIN settings WHERE copies > 0
    GROUP BY fingerprint, popular_above HAVING COUNT(*) > popular_above
),
held AS MATERIALIZED (
    SELECT samples.guest, samples.fingerprint, (samples.fingerprint & settings.ranking_mask) = 0 AS is_ranked
    FROM samples SEMI JOIN popular ON samples.fingerprint = popular.fingerprint CROSS JOIN settings
    WHERE samples.copies > 0
),
-- Listed pairs come first: two guests' rows joined by fingerprint alone would be the square of the fleet.
of_one AS MATERIALIZED (
    SELECT listed.guest_a, listed.guest_b, held.fingerprint, held.is_ranked FROM listed JOIN held ON held.guest = listed.guest_a
)
SELECT of_one.guest_a, of_one.guest_b, COUNT(*) AS common, COUNT(*) FILTER (of_one.is_ranked) AS ranked
FROM of_one JOIN held AS two ON two.guest = of_one.guest_b AND two.fingerprint = of_one.fingerprint
GROUP BY of_one.guest_a, of_one.guest_b
