-- Which guest holds which shared content.
WITH shared AS (
    SELECT fingerprint FROM samples WHERE copies > 0 GROUP BY fingerprint HAVING COUNT(*) >= 2
)
SELECT samples.guest, samples.fingerprint
FROM samples JOIN shared ON samples.fingerprint = shared.fingerprint
WHERE samples.copies > 0
